"""Plant faults into the code that makes numbers, one at a time, and see whether the tests notice.

    python tools/plant_faults.py --n 30 --seed 0
    python tools/plant_faults.py --paths isotrain/objectives --n 10

A fault is a changed operator, comparison or constant, or a statement left out, drawn from the
syntax trees of the modules below the given paths: modules in turn, then a kind, then a place. It is
planted into a copy of the checkout. Its doctests, the tests of its name, those of its folder, the
golden run and the check of config against code decide, in this order, less what is marked slow or
campaign; a test that fails must pass without the fault. A survivor is for a person to judge: some
faults change nothing that could be seen.
"""

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PATHS = [f"isotrain/{part}" for part in ("geometry", "transforms", "objectives", "metrics")]
PATHS += ["isotrain/training", "isotrain/model"]
LAST = ("tests/training/test_golden.py", "tests/conf/test_every_config.py")
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
ARITHMETIC |= {ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}
COMPARISON = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
COMPARISON |= {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
LOGIC = {ast.And: ast.Or, ast.Or: ast.And}
SILENT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)  # no numbers below


class Fault(NamedTuple):
    """A change of one module, from byte `start` to `end` of its text."""

    path: str
    line: int
    kind: str
    old: str
    new: str
    start: int
    end: int


def nodes(tree: ast.AST) -> Iterator[Any]:
    """What computes: neither annotations nor decorators, nor what is only said."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            strict = isinstance(node, ast.keyword) and node.arg == "strict"  # of zip: an assertion
            if isinstance(node, ast.AST) and not isinstance(node, SILENT) and not strict:
                yield node
                yield from nodes(node)


def changed(node: ast.AST) -> tuple[str, ast.AST] | None:
    """The kind of a fault and the node with it; None where none is known."""
    new: Any = deepcopy(node)
    match node:
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            new.op = ARITHMETIC[type(node.op)]()
            return "operator", new
        case ast.BoolOp():
            new.op = LOGIC[type(node.op)]()
            return "comparison", new
        case ast.Compare() if type(node.ops[0]) in COMPARISON:
            new.ops[0] = COMPARISON[type(node.ops[0])]()
            return "comparison", new
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            return "operator", new.operand
        case ast.Constant(value=bool(value)):
            new.value = not value
            return "constant", new
        case ast.Constant(value=int(value)):
            new.value = value + 1
            return "constant", new
        case ast.Constant(value=float(value)):
            new.value = value * 1.1 or 0.1
            return "constant", new
        case ast.Expr(value=ast.Call()):
            return "left out", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            return "left out", ast.Pass()
    return None


def faults_of(root: Path, path: str) -> list[Fault]:
    """Every fault that can be planted into a module."""
    text = (root / path).read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in nodes(ast.parse(text)):
        if (change := changed(node)) is None:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old, new = text[start:end].decode(), ast.unparse(change[1])
        new = f"({new})" if isinstance(node, ast.expr) else new
        found.append(Fault(path, node.lineno, change[0], old, new, start, end))
    return found


def drawn(root: Path, paths: Sequence[str], n: int, seed: int) -> list[Fault]:
    """`n` faults: of modules in turn, of a kind, and then of the places of that kind."""
    draw = random.Random(seed)
    files = [f for p in paths for f in ([root / p] if p.endswith(".py") else (root / p).rglob("*"))]
    names = sorted({str(f.relative_to(root)) for f in files if f.suffix == ".py"})
    known = {name: found for name in names if (found := faults_of(root, name))}
    if not known:
        sys.exit(f"nothing to change below {', '.join(paths)}")
    chosen: list[Fault] = []
    while len(chosen) < n and known:
        for name in draw.sample(sorted(known), min(len(known), n - len(chosen))):
            kind = draw.choice(sorted({fault.kind for fault in known[name]}))
            fault = draw.choice([fault for fault in known[name] if fault.kind == kind])
            chosen.append(fault)
            known[name].remove(fault)
        known = {name: found for name, found in known.items() if found}
    return chosen


def tests_of(root: Path, path: str) -> list[str]:
    """The tests that decide about a module, those that know it best first."""
    module = Path(path)
    folder = "tests" / module.relative_to("isotrain").parent
    while not (root / folder).exists():  # tests of tasks/data lie in tests/tasks
        folder = folder.parent
    own = sorted((root / "tests").rglob(f"test_{module.name}"))
    near = [path, *(str(f.relative_to(root)) for f in own)]
    if folder != Path("tests"):
        near += sorted(str(f.relative_to(root)) for f in (root / folder).glob("test_*.py"))
    return list(dict.fromkeys([*near, *(name for name in LAST if (root / name).exists())]))


def failing(root: Path, tests: Sequence[str], limit_s: float) -> str | None:
    """What pytest says fails first, or `timeout`; None where all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not campaign and not slow", "--tb=no", "-rfE", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "timeout"
    if process.returncode in (0, 5):  # 5: every one is left out
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    return found[1] if found else f"exit code {process.returncode}: {said[-300:]}"


def main() -> int:
    """Print a line for each fault, and the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paths", nargs="+", default=PATHS)
    parser.add_argument("--limit", type=float, default=600, help="seconds that tests may take")
    given = parser.parse_args()
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    files = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\n")
    caught: list[bool] = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "copy"
        for name in filter(None, files):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy2(ROOT / name, root / name)
        for fault in drawn(root, given.paths, given.n, given.seed):
            started, file = time.perf_counter(), root / fault.path
            text = file.read_bytes()
            file.write_bytes(text[: fault.start] + fault.new.encode() + text[fault.end :])
            by = failing(root, tests_of(root, fault.path), given.limit)
            file.write_bytes(text)
            if by and "::" in by and (again := failing(root, [by], given.limit)):
                sys.exit(f"{again} fails without a fault too: repair it first")
            caught.append(by is not None)
            change = f"{' '.join(fault.old.split())} -> {fault.new}"
            verdict = f"caught by {by}" if by else "SURVIVED"
            seconds = time.perf_counter() - started
            at = f"{fault.path}:{fault.line}"
            print(f"{at} {fault.kind}: {change}\n    {verdict}, {seconds:.0f} s", flush=True)
    print(f"{sum(caught)} of {len(caught)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
