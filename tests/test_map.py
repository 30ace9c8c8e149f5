"""The map is true: what the folders' docstrings and docs/code.md name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "isotrain"
FOLDERS = sorted(
    path.parent for path in PACKAGE.rglob("__init__.py") if "__pycache__" not in path.parts
)
STATION = re.compile(r"`(isotrain/[\w/]+\.py)(?::([\w.]+))?`")


def names_in(source):
    """Functions and classes of a file, methods as `Class.method`."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_folder_says_what_lives_there_and_names_files_that_exist(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert text, f"{folder} needs a docstring: what lives there, and what to add where"
    named = re.findall(r"(?:`|^    )([\w/]+\.py)\b", text, flags=re.MULTILINE)
    missing = [name for name in named if not (folder / name).is_file()]
    assert missing == []


def test_the_root_has_ten_files_at_most():
    assert len(list(PACKAGE.glob("*.py"))) <= 10


def test_docs_code_names_files_and_functions_that_exist():
    stations = STATION.findall((ROOT / "docs" / "code.md").read_text())
    assert len(stations) > 20
    for file, name in stations:
        assert (ROOT / file).is_file(), file
        assert not name or name in names_in((ROOT / file).read_text()), f"{file}:{name}"
