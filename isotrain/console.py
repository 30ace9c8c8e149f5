"""Everything a command prints: text, errors with their exit codes, a spinner for slow steps.

Imports rich alone, so that a command can show the spinner while torch is being imported.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from rich import get_console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from isotrain.runs.secrets import redacted

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
    rich's console (`isotrain.console.say`), and is gone when the block ends. It gives way to
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


FAILED, REFUSED = 1, 2  # exit codes; after a signal, 128 + its number


def tell(what: str, lines: Sequence[str]) -> None:
    """Write `isotrain: <what>` to stderr, and below it the lines."""
    print(f"isotrain: {what}", *redacted(list(lines)), sep="\n  ", file=sys.stderr)


def refused(mistakes: str | Sequence[str]) -> int:
    """Exit code 2, once the mistakes of a command that cannot run are told: a text, or lines."""
    tell("this cannot run", mistakes.splitlines() if isinstance(mistakes, str) else mistakes)
    return REFUSED


def install(extra: str) -> str:
    """What brings an extra of isotrain, which is on no package index.

    >>> install("peft")
    "pip install -e '.[peft]' in the clone of isotrain"
    """
    return f"pip install -e '.[{extra}]' in the clone of isotrain"


def say(what: Any) -> None:
    """Print; neither a path nor a table is broken to fit a width, in a terminal or a log.

    Through rich's own console: what it says stands above a line of `isotrain.console`.
    """
    console = get_console()
    if isinstance(what, Table):
        what.width = console.measure(what, options=console.options.update(max_width=1000)).maximum
    console.print(what, soft_wrap=True, markup=False, highlight=False)


def print_start(folder: Path, n_parameters: Mapping[str, int], n_rows: Mapping[str, int]) -> None:
    """One line: folder, trainable parameters, rows."""
    share = n_parameters["trainable"] / n_parameters["total"]
    rows = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    say(
        f"{folder}: training {n_parameters['trainable']:,} of {n_parameters['total']:,} "
        f"parameters ({share:.0%}); rows: {rows}"
    )


def print_phases(phases: Sequence[Mapping[str, Any]], n_parameters: Mapping[str, int]) -> None:
    """A line for each phase: what trains from which step, at which peak learning rates.

    Nothing where everything trains from the start.

    >>> group = {"parts": ["block 2", "head"], "n_parameters": 5, "lr": 1e-4}
    >>> phases = [{"from_step": 0, "n_parameters": 5, "groups": [group]}]
    >>> print_phases(phases, {"total": 20, "trainable": 5})
    from step 0: 5 parameters (25%) in block 2, head; learning rate 0.0001
    >>> print_phases(phases, {"total": 5, "trainable": 5})
    """
    if len(phases) < 2 and n_parameters["trainable"] == n_parameters["total"]:
        return
    for phase in phases:
        parts = dict.fromkeys(part for group in phase["groups"] for part in group["parts"])
        rates = [group["lr"] for group in phase["groups"]]
        spread = dict.fromkeys(f"{rate:.3g}" for rate in (min(rates), max(rates)))
        say(
            f"from step {phase['from_step']}: {phase['n_parameters']:,} parameters "
            f"({phase['n_parameters'] / n_parameters['total']:.0%}) in {', '.join(parts)}; "
            f"learning rate {' to '.join(spread)}"
        )


def print_changes(changes: Mapping[str, Any]) -> None:
    """One line where the training data were changed: rows kept, of which class, labels, sentences.

    >>> print_changes({"rows": {"before": 3000, "after": 750}, "labels_replaced": 75,
    ...                "labels_changed": 70})
    changed data: 750 of 3,000 training rows; 75 labels replaced, of which 70 differ
    """
    if not changes:
        return
    rows = changes["rows"]
    line = f"changed data: {rows['after']:,} of {rows['before']:,} training rows"
    if classes := changes.get("classes"):
        counts = (f"{name} {n['kept']:,} of {n['before']:,}" for name, n in classes.items())
        line += f" ({', '.join(counts)})"
    if "labels_replaced" in changes:
        replaced, differ = changes["labels_replaced"], changes["labels_changed"]
        line += f"; {replaced:,} labels replaced, of which {differ:,} differ"
    say(line + ("; sentence 1 empty in every split" if "sentence1" in changes else ""))
