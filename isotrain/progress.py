"""One line that says what lasts, on a terminal; elsewhere nothing at all.

Imports rich alone: a command shows it while torch is still being imported.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich import get_console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

DELAY_S = 0.5  # what is done sooner shows nothing
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # a launcher sets one
_lines: list[_Line] = []  # of the outermost block, while there is one


def is_watched() -> bool:
    """Whether stdout is a terminal, and this the first process of its job."""
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    return rank == "0" and sys.stdout.isatty()


def launched() -> bool:
    """Whether a launcher (torchrun, srun) has started one process for each rank, this one too."""
    interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    by_slurm = os.environ.get("SLURM_NTASKS", "1") != "1" and not interactive
    return by_slurm or "RANK" in os.environ or "LOCAL_RANK" in os.environ


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A function that changes the text of a line `what`, shown with its time while a block lasts.

    The line appears after `DELAY_S`, stands below everything that is printed meanwhile through
    rich's console (`isotrain.pages.summary.say`), and is gone when the block ends. It gives way to
    anything else that writes to stdout or stderr, such as the bar of a download. A block within
    another changes the line of the outer one for its time.

    >>> with working("reading 5,428 rows") as now:
    ...     now("tokenising 5,428 rows")
    """
    if not is_watched():
        yield lambda text: None
        return
    if _lines:
        line = _lines[0]
        before = line.text
        line.show(what)
        try:
            yield line.show
        finally:
            line.show(before)
        return
    _lines.append(line := _Line(what))
    out, err = (_GivesWay(stream, line.hide) for stream in (sys.stdout, sys.stderr))
    try:
        with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
            yield line.show
    finally:
        _lines.clear()
        line.hide()


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(59.6), duration(3_671)
    ('1:00', '1:01:11')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Line:
    """A spinner, a text and the time since the beginning."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._shown = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            console=get_console(),
            transient=True,
            refresh_per_second=5,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._shown.add_task(text, total=None)
        self._timer = threading.Timer(0, lambda: None)
        self.show(text)

    def show(self, text: str) -> None:
        """Change the text, and appear in a while if it does not stand there."""
        self.text = text
        self._shown.update(self._task, description=text)
        if not self._shown.live.is_started and not self._timer.is_alive():
            self._timer = threading.Timer(DELAY_S, self._shown.start)
            self._timer.daemon = True
            self._timer.start()

    def hide(self) -> None:
        """Be gone, and do not appear."""
        self._timer.cancel()
        if self._timer.ident not in (None, threading.get_ident()):
            self._timer.join()  # it may be at it
        self._shown.stop()


class _GivesWay:
    """A stream that takes the line away before it writes; the console itself goes past it."""

    def __init__(self, stream: Any, hide: Callable[[], None]) -> None:
        self.rich_proxied_file, self._hide = stream, hide

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        self._hide()
        return int(self.rich_proxied_file.write(text))
