"""Output of commands: text, errors with exit codes, a spinner for slow steps.

Imports only the standard library, and rich where it prints, so that `--help` is quick and a command
can show the spinner while torch is being imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from isotrain.runs.secrets import redacted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.table import Table

FAILED, REJECTED = 1, 2  # exit codes; after a signal, 128 + its number
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # a launcher sets one
UNSEEN = (  # control characters but newline and tab, marks of direction, halves of characters
    *({*range(32), *range(127, 160)} - {9, 10}),
    *(0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)),
)
ESCAPES = {n: f"\\x{n:02x}" if n < 256 else f"\\u{n:04x}" for n in UNSEEN}
_spinners: list[Live] = []  # those shown; output to stderr stops them


class UserError(ValueError):
    """An error of the user's command; its message is shown without a traceback."""


@contextmanager
def guarded() -> Iterator[None]:
    """Within the block, stdout and stderr raise no errors; neither does Python's exit."""
    streams = sys.stdout, sys.stderr
    out, error = _Output(_opened(sys.stdout)), _ErrorOutput(_opened(sys.stderr))
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, error)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        for output in (out, error):
            _close_off(output)


def is_lost() -> bool:
    """Whether any of the standard output was dropped."""
    sys.stdout.flush()
    return bool(getattr(sys.stdout, "is_lost", False))


def say(message: Any) -> None:
    """Print a text or table, unwrapped at any width; above the spinner while there is one."""
    from rich import get_console
    from rich.table import Table

    console = get_console()
    if isinstance(message, Table):
        options = console.options.update(max_width=1000)
        message.width = console.measure(message, options=options).maximum
    output = _Printable(message) if isinstance(message, Table) else printable(str(message))
    console.print(output, soft_wrap=True, markup=False, highlight=False)


def printable(text: str) -> str:
    r"""The text with control sequences and unprintable characters escaped.

    >>> printable("a\x1b[2J\nb")
    'a\\x1b[2J\nb'
    """
    return text.translate(ESCAPES)


def print_error(summary: str, lines: Sequence[str]) -> None:
    """Write `isotrain: <summary>` and the lines to stderr, redacted and printable."""
    lines = [f"isotrain: {summary}", *redacted(list(lines))]
    print(*map(printable, lines), sep="\n  ", file=sys.stderr)


def reject(errors: str | Sequence[str]) -> int:
    """Exit code 2, after printing why a command cannot run: a text, or lines."""
    lines = errors.splitlines() if isinstance(errors, str) else errors
    print_error("this cannot run", lines)
    return REJECTED


@contextmanager
def spinner(message: str) -> Iterator[Callable[[str], None]]:
    """Terminal spinner for a slow step; silent when stdout is not a terminal.

    Yields a function that changes the text. The spinner stays below printed lines. It ends early if
    something else writes to stderr, such as a download bar.

    >>> with spinner("reading 5,428 rows") as now:
    ...     now("tokenising 5,428 rows")
    """
    if not is_watched():
        yield lambda text: None
        return
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    line = Spinner("dots", Text(message))
    with Live(line, transient=True, redirect_stderr=False) as live:
        _spinners.append(live)
        try:
            yield lambda text: line.update(text=Text(text))
        finally:
            _spinners.remove(live)


@contextmanager
def drawing(page: Path, rest: str) -> Iterator[None]:
    """Spinner while a page is drawn; an error is reported, and that the rest is complete."""
    try:
        with spinner(f"drawing {page.name}"):
            yield
    except Exception as error:  # whatever a plotting library may raise
        reason = redacted(f"{type(error).__name__}: {error}")
        say(f"{page} could not be drawn ({reason}); {rest} complete")


def is_watched() -> bool:
    """Whether stdout is a terminal and this is rank 0."""
    return process_rank() == 0 and sys.stdout.isatty()


def process_rank() -> int:
    """The rank of this process: of its process group, or before that by its launcher."""
    torch = sys.modules.get("torch")  # imported by whoever has made a process group
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(next((os.environ[name] for name in RANKS if name in os.environ), "0"))


def launcher() -> str:
    """The launcher that started one process per rank: torchrun, srun, another; empty if none."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    if os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":  # a script or lone task has SLURM_NTASKS
        return "srun"
    return "another" if "RANK" in os.environ or "LOCAL_RANK" in os.environ else ""


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(59.6), duration(3_671)
    ('1:00', '1:01:11')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def nearest(name: str, legal: Sequence[str], listed: str = "it has") -> str:
    """A hint: the closest legal name, or all of them after the text `listed`."""
    if not legal:
        return "it has none"
    near = get_close_matches(name, legal, n=1)
    return f"did you mean {near[0]}?" if near else f"{listed} {', '.join(legal)}"


def install(extra: str) -> str:
    """The command that installs an extra of isotrain (not on a package index)."""
    return f"pip install -e '.[{extra}]' in the clone of isotrain"


def print_start(
    folder: Path, n_parameters: Mapping[str, int], n_rows: Mapping[str, int], trains: bool = True
) -> None:
    """One line: folder, trainable parameters if any are trained, examples."""
    n, total = n_parameters["trainable"], n_parameters["total"]
    rows = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    action = f"training {n:,} of {total:,} parameters ({n / total:.1%})" if trains else "evaluating"
    say(f"{folder}: {action}; examples: {rows}")


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
        share = f"{n['scored']:,} of {n['of']:,} examples"
        say(f"scored of {split}: {share}, a fixed random subset (data.n_{split})")
    if not changes:
        return
    rows = changes["rows"]
    line = f"changed data: {rows['after']:,} of {rows['before']:,} training examples"
    if classes := changes.get("classes"):
        counts = (f"{name} {n['kept']:,} of {n['before']:,}" for name, n in classes.items())
        line += f" ({', '.join(counts)})"
    if "labels_replaced" in changes:
        n_replaced, n_changed = changes["labels_replaced"], changes["labels_changed"]
        line += f"; {n_replaced:,} labels replaced, of which {n_changed:,} differ"
    say(line + ("; sentence 1 empty in every split" if "sentence1" in changes else ""))


class _Printable:
    """A table with printable texts."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self.table, options):
            yield Segment(printable(segment.text), segment.style, segment.control)


class _Output:
    """A text stream that drops what it cannot write, and escapes what it cannot encode."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_lost = False  # whether anything was dropped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """The length of the text, written or not."""
        try:
            self.stream.write(text)
        except UnicodeEncodeError as error:
            self.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        except (OSError, ValueError):  # a full disk, a lost terminal; a closed file
            self.is_lost = True
        return len(text)

    def flush(self) -> None:
        """Flush, if it can be."""
        try:
            self.stream.flush()
        except (OSError, ValueError):
            self.is_lost = True


class _ErrorOutput(_Output):
    """Standard error, which shares the terminal with the spinner."""

    def write(self, text: str) -> int:
        """As `_Output`; a spinner ends."""
        for live in list(_spinners):
            live.stop()
        return super().write(text)


def _opened(stream: TextIO | None) -> TextIO:
    """The stream; one that takes everything where the process was started without it (`>&-`)."""
    return open(os.devnull, "w", encoding="utf-8") if stream is None else stream


def _close_off(output: _Output) -> None:
    """Flush; where that fails, discard the rest, which Python's exit would try again."""
    with suppress(ValueError):  # closed
        try:
            output.stream.flush()
        except OSError:
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, output.stream.fileno())
            os.close(descriptor)
            output.stream.flush()
