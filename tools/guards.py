"""List what raises and warns: the messages of a commit, or those that two states do not share.

    python tools/guards.py              # of the working tree
    python tools/guards.py HEAD~3       # gone (−) and new (+) since a commit

A guard is a `raise` with an expression, a call of `warn`, `warning` or `print_error`, or a `yield`
of a rule's text, named by file and function, with the constant parts of its message. One that
moved with its message is the same; so a change of words shows as one gone and one new.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from size import ROOT, sources  # type: ignore[import-not-found]

WARNS = {"warn", "warning", "print_error", "rank_zero_warn"}


def message(node: ast.AST) -> str:
    """The constant parts of a message, joined."""
    parts = [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return " … ".join(" ".join(part.split()) for part in parts if part.strip())


def guards(text: str) -> Iterator[tuple[str, str]]:
    """Function and message of each guard of a file."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
        told: ast.AST | None = None
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            told = node.exc
        elif isinstance(node, ast.Call):
            called = node.func
            if getattr(called, "attr", getattr(called, "id", "")) in WARNS:
                told = node
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.JoinedStr | ast.Constant):
            told = node.value
        if told is not None and message(told):
            yield name, message(told)
            return
        for child in ast.iter_child_nodes(node):
            yield from visit(child, name)

    yield from visit(ast.parse(text), "")


def of_state(root: Path, commit: str | None) -> Counter[tuple[str, str, str]]:
    """The guards of the package in a state: file, function, message."""
    return Counter(
        (name.removeprefix("isotrain/"), function, told)
        for name, text in sources(root, commit).items()
        if name.startswith("isotrain/") and name.endswith(".py")
        for function, told in guards(text.decode())
    )


def main() -> None:
    """Print the guards, or the difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?")
    since = parser.parse_args().commit
    now = of_state(ROOT, None)
    if since is None:
        for file, function, told in sorted(now.elements()):
            print(f"{file}:{function} | {told}")
        print(f"{now.total():,} guards")
        return
    before = of_state(ROOT, since)
    told_now = Counter(told for _, _, told in now.elements())
    told_before = Counter(told for _, _, told in before.elements())
    for mark, state, other in (("−", before, told_now), ("+", now, told_before)):
        for file, function, told in sorted(state.elements()):
            if told not in other:
                print(f"{mark} {file}:{function} | {told}")
    print(f"{before.total():,} guards before, {now.total():,} now")


if __name__ == "__main__":
    main()
