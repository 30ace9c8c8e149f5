"""Count the source lines that a reader meets on the way to a training step, and in one.

    python tools/road.py
    python tools/road.py --files    # and the lines of each file

Traces one run: `isotrain train` with WiC, cluster PCA, the tiny encoder, generated data, one metric
(each further metric adds a file) and empty caches, on the CPU and in a temporary folder.

- to the first step: from the start of the command, imports included, to the first call of
  `training_step`. Checks, data, building and the evaluation at step 0 are part of it.
- one step: from this call to the next one: forward, backward, optimizer and the next batch. No
  record, evaluation or checkpoint is due.

Counted are the functions of isotrain that are entered. A function is a `def`, also of a method or
inside another function, from its first decorator to its last line, with docstring, comments and
blank lines. A line counts once, however often it is reached. Module and class bodies, lambdas
outside of functions and generated methods do not count.
"""

import argparse
import ast
import contextlib
import io
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "isotrain"
RUN = (
    *("task=wic", "isotropy=cluster_pca", "encoder=tiny", "source=demo", "metric=[isoscore]"),
    *("trainer.accelerator=cpu", "trainer.max_steps=2", "report=false"),
    "trainer.log_every_n_steps=2",
)
STEP = "training_step"


class Function(NamedTuple):
    """Where a function is defined: `line` is that of its first decorator."""

    file: str
    line: int
    name: str


def entered(work: Callable[[], object], package: Path, mark: str) -> list[set[Function]]:
    """Functions of a package that a call enters, in parts: a call of `mark` begins the next."""
    below, parts = f"{package}/", [set[Function]()]

    def trace(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(below) and code.co_filename.endswith(".py"):
            if code.co_name == mark:
                parts.append(set())
            parts[-1].add(Function(code.co_filename, code.co_firstlineno, code.co_name))

    before = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])
    return parts


def lines(functions: Iterable[Function]) -> dict[str, set[int]]:
    """Source lines of functions, by file."""
    found: dict[str, set[int]] = defaultdict(set)
    for function in functions:
        if span := spans(function.file).get(function):
            found[function.file].update(span)
    return dict(found)


@cache
def spans(file: str) -> dict[Function, range]:
    """Line range of every function that a file defines."""
    found = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            span = range(first, (node.end_lineno or first) + 1)
            found[Function(file, first, node.name)] = span
    return found


def train() -> None:
    """Train `RUN` in a temporary folder, silently; SystemExit with its output where it fails."""
    said = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        from isotrain.cli import main as isotrain

        code = isotrain(["train", *RUN, f"output_dir={folder}"])
    if code:
        sys.exit(f"the run ended with exit code {code}:\n{said.getvalue()}")


def main() -> None:
    """Print lines and files of both roads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", action="store_true", help="the lines of each file too")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    to_first, step, _ = map(lines, entered(train, PACKAGE, STEP))  # the last: the second step
    print(f"{'':<40}{'to the first step':>18}{'one step':>10}")
    for what, count in (("lines", _n_lines), ("files", len)):
        print(f"{what:<40}{count(to_first):>18,}{count(step):>10,}")
    if given.files:
        print()
        for file in sorted(to_first.keys() | step.keys()):
            n = [len(road.get(file, ())) or "–" for road in (to_first, step)]
            print(f"{Path(file).relative_to(PACKAGE)!s:<40}{n[0]:>18}{n[1]:>10}")


def _n_lines(road: dict[str, set[int]]) -> int:
    return sum(map(len, road.values()))


if __name__ == "__main__":
    main()
