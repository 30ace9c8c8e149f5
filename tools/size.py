"""Count the project by top-level folder: statements and lines of Python, lines of other sources.

    python tools/size.py              # tracked files, as they are in the working tree
    python tools/size.py HEAD~3       # as they are in a commit

A statement is an `ast.stmt` node at any depth. The docstring of a module, class or function is
none; another string that stands alone, such as one below an attribute, is one.
"""

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
KINDS = (".py", ".yaml", ".j2", ".js", ".html", ".css")
HEAD = ("", "statements", *KINDS)


def git(root: Path, *words: str) -> bytes:
    """What a git command prints."""
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout


def sources(root: Path, commit: str | None = None) -> dict[str, bytes]:
    """Tracked files of the counted kinds by path, from the working tree or from a commit."""
    if commit is None:
        names = git(root, "ls-files", "-z").decode().split("\0")
        files = [name for name in names if name.endswith(KINDS) and (root / name).is_file()]
        return {name: (root / name).read_bytes() for name in files}
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", "--format=tar", commit))) as archive:
        members = [member for member in archive if member.name.endswith(KINDS)]
        opened = {member.name: archive.extractfile(member) for member in members}
        return {name: file.read() for name, file in opened.items() if file is not None}


def n_statements(text: bytes) -> int:
    """Statements of a Python source, without docstrings."""
    nodes = list(ast.walk(ast.parse(text)))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = [isinstance(n, documented) and ast.get_docstring(n) is not None for n in nodes]
    return sum(isinstance(node, ast.stmt) for node in nodes) - sum(docstrings)


def counts(files: Mapping[str, bytes]) -> dict[str, Counter[str]]:
    """Statements, and lines by kind, of each top-level folder; files of the root are `.`."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, text in files.items():
        path = PurePosixPath(name)
        folder = f"{path.parts[0]}/" if len(path.parts) > 1 else "."
        found[folder][path.suffix] += len(text.splitlines())
        if path.suffix == ".py":
            found[folder]["statements"] += n_statements(text)
    return dict(found)


def table(found: Mapping[str, Counter[str]]) -> str:
    """Aligned table: the folders, the largest first, their sum, and `tests/` by itself."""
    folders = sorted(found.keys() - {"tests/"}, key=lambda name: (-found[name].total(), name))
    rows = [(name, found[name]) for name in folders]
    rows.append(("without tests", sum((found[name] for name in folders), Counter())))
    rows.append(("tests/", found.get("tests/", Counter())))
    return "\n".join(map(_line, [HEAD, *((name, *_cells(count)) for name, count in rows)]))


def _cells(count: Counter[str]) -> Iterable[str]:
    return (f"{count[key]:,}" if count[key] else "–" for key in HEAD[1:])


def _line(cells: Iterable[str]) -> str:
    name, *numbers = cells
    return f"{name:<14}" + "".join(f"{number:>11}" for number in numbers)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", nargs="?", help="count this commit in place of the working tree")
    given = parser.parse_args()
    print(table(counts(sources(ROOT, given.commit))))


if __name__ == "__main__":
    main()
