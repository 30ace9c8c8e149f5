"""Output of commands: text, errors with exit codes, a spinner for slow steps.

Imports only rich, so that a command can show the spinner while torch is being imported.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from rich import get_console
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Column, Table

from isotrain.runs.secrets import redacted

FAILED, REJECTED = 1, 2  # exit codes; after a signal, 128 + its number
DELAY_S = 0.5  # a faster step shows no spinner
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # a launcher sets one
UNSEEN = (  # control characters but newline and tab, marks of direction, halves of characters
    *({*range(32), *range(127, 160)} - {9, 10}),
    *(0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)),
)
ESCAPES = {n: f"\\x{n:02x}" if n < 256 else f"\\u{n:04x}" for n in UNSEEN}
_lines: list[_Line] = []  # of the outermost spinner, while there is one


def say(what: Any) -> None:
    """Print a text or table, unwrapped at any width; above the spinner while there is one."""
    console = get_console()
    if isinstance(what, Table):
        what.width = console.measure(what, options=console.options.update(max_width=1000)).maximum
    shown = _Printable(what) if isinstance(what, Table) else printable(str(what))
    console.print(shown, soft_wrap=True, markup=False, highlight=False)


def printable(text: str) -> str:
    r"""The text with control sequences and unprintable characters escaped.

    >>> printable("a\x1b[2J\nb")
    'a\\x1b[2J\nb'
    """
    return text.translate(ESCAPES)


def print_error(what: str, lines: Sequence[str]) -> None:
    """Write `isotrain: <what>` and the lines to stderr, redacted and printable."""
    lines = [f"isotrain: {what}", *redacted(list(lines))]
    print(*map(printable, lines), sep="\n  ", file=sys.stderr)


def reject(errors: str | Sequence[str]) -> int:
    """Exit code 2, after printing why a command cannot run: a text, or lines."""
    lines = errors.splitlines() if isinstance(errors, str) else errors
    print_error("this cannot run", lines)
    return REJECTED


def score_text(value: float) -> str:
    """A score or loss as a command prints it; a dash where it is undefined."""
    return "–" if value != value else f"{value:z.4f}".replace("-", "−")


@contextmanager
def spinner(what: str) -> Iterator[Callable[[str], None]]:
    """Terminal spinner for a slow step; silent when stdout is not a terminal.

    Yields a function that changes the text. The line appears after `DELAY_S`, below all that `say`
    prints, and is removed at the end. Any other output, such as the bar of a download, removes it
    too. A block within another changes the text of the outer line.

    >>> with spinner("reading 5,428 rows") as now:
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
    out, err = (_GivesWay(stream, line.stop) for stream in (sys.stdout, sys.stderr))
    try:
        with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
            yield line.show
    finally:
        _lines.clear()
        line.stop()


@contextmanager
def drawing(page: Path, rest: str) -> Iterator[None]:
    """A spinner while a page is drawn; an error is reported, and that the rest is complete."""
    try:
        with spinner(f"drawing {page.name}"):
            yield
    except Exception as error:  # whatever a plotting library may raise
        reason = redacted(f"{type(error).__name__}: {error}")
        say(f"{page} could not be drawn ({reason}); {rest} complete")


def is_watched() -> bool:
    """Whether stdout is a terminal and this is rank 0."""
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    return rank == "0" and sys.stdout.isatty()


def launched() -> bool:
    """Whether a launcher (torchrun, srun) has started one process per rank."""
    interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    by_slurm = os.environ.get("SLURM_NTASKS", "1") != "1" and not interactive
    return by_slurm or "RANK" in os.environ or "LOCAL_RANK" in os.environ


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(59.6), duration(3_671)
    ('1:00', '1:01:11')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(n: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def install(extra: str) -> str:
    """The command that installs an extra of isotrain (not on a package index)."""
    return f"pip install -e '.[{extra}]' in the clone of isotrain"


def print_start(
    folder: Path, n_parameters: Mapping[str, int], n_rows: Mapping[str, int], trains: bool = True
) -> None:
    """One line: folder, trainable parameters if any are trained, examples."""
    n, of_all = n_parameters["trainable"], n_parameters["total"]
    rows = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    what = f"training {n:,} of {of_all:,} parameters ({n / of_all:.1%})" if trains else "evaluating"
    say(f"{folder}: {what}; examples: {rows}")


def print_phases(phases: Sequence[Mapping[str, Any]], n_parameters: Mapping[str, int]) -> None:
    """One line per stage: what trains from which step, at which peak learning rates.

    Nothing if everything trains from the start.

    >>> group = {"parts": ["block 2", "head"], "n_parameters": 5, "lr": 1e-4}
    >>> phases = [{"from_step": 0, "n_parameters": 5, "groups": [group]}]
    >>> print_phases(phases, {"total": 20, "trainable": 5})
    from step 0: 5 parameters (25.0%) in block 2, head; learning rate 0.0001
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
            f"({phase['n_parameters'] / n_parameters['total']:.1%}) in {', '.join(parts)}; "
            f"learning rate {' to '.join(spread)}"
        )


def print_changes(changes: Mapping[str, Any], limited: Mapping[str, Mapping[str, int]]) -> None:
    """One line if a split is scored in part, and one if the training set was perturbed.

    >>> print_changes({"rows": {"before": 3000, "after": 750}, "labels_replaced": 75,
    ...                "labels_changed": 70}, {"dev": {"scored": 64, "of": 500}})
    scored of dev: 64 of 500 examples, a fixed random subset (data.n_dev)
    changed data: 750 of 3,000 training examples; 75 labels replaced, of which 70 differ
    """
    for split, n in limited.items():
        few = f"{n['scored']:,} of {n['of']:,} examples"
        say(f"scored of {split}: {few}, a fixed random subset (data.n_{split})")
    if not changes:
        return
    rows = changes["rows"]
    line = f"changed data: {rows['after']:,} of {rows['before']:,} training examples"
    if classes := changes.get("classes"):
        counts = (f"{name} {n['kept']:,} of {n['before']:,}" for name, n in classes.items())
        line += f" ({', '.join(counts)})"
    if "labels_replaced" in changes:
        replaced, differ = changes["labels_replaced"], changes["labels_changed"]
        line += f"; {replaced:,} labels replaced, of which {differ:,} differ"
    say(line + ("; sentence 1 empty in every split" if "sentence1" in changes else ""))


class _Printable:
    """A table with printable texts."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.table, options):
            yield Segment(printable(segment.text), segment.style, segment.control)


class _Line(Progress):
    """A spinner, a text and the time since the beginning."""

    def __init__(self, text: str) -> None:
        self.text, self._shown_at = text, time.monotonic() + DELAY_S
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            transient=True,
            refresh_per_second=5,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.add_task(text, total=None)
        self.start()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Empty before `DELAY_S`."""
        return super().get_renderables() if time.monotonic() > self._shown_at else [""]

    def show(self, text: str) -> None:
        """Change the text; show the line again if other output removed it."""
        self.text = text
        self.update(self.task_ids[0], description=text)
        if not self.live.is_started:
            self._shown_at = time.monotonic() + DELAY_S
            self.start()


class _GivesWay:
    """A stream that removes the spinner before it writes; the console itself bypasses it."""

    def __init__(self, stream: Any, hide: Callable[[], None]) -> None:
        self.rich_proxied_file, self._hide = stream, hide

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        self._hide()
        return int(self.rich_proxied_file.write(text))
