"""What the docstring of every metric, objective and layer tells: docs/metrics.md promises it."""

import ast
import re
from pathlib import Path

import pytest

import isotrain

ROOT = Path(isotrain.__file__).parent
VARIANTS = ("ClusterPCA", "AllButTheTop", "Clip")  # of which other layers are made
TELLS = {
    "shapes": r"\[([A-Z], )+D\]",
    "source": r"\b(19|20)\d\d\b|\bOurs\b|Principal component analysis",
    "example": r">>> ",
}


def docstrings():
    """Of the functions that files are named after, and of the layers."""
    found = {}
    for package in ("metrics", "objectives", "transforms"):
        for file in sorted((ROOT / package).glob("[a-z]*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                name = getattr(node, "name", "")
                bases = " ".join(map(ast.unparse, getattr(node, "bases", [])))
                is_layer = "Transform" in bases and not name.endswith("Transform")
                is_layer = (is_layer and bases != "RowTransform") or bases in VARIANTS
                if is_layer or name == file.stem:
                    found[f"{package}.{name}"] = ast.get_docstring(node)
    return {name: text for name, text in found.items() if name != "metrics.suite"}


DOCSTRINGS = docstrings()


def test_there_is_one_of_each_part():
    counts = {package: 0 for package in ("metrics", "objectives", "transforms")}
    for name in DOCSTRINGS:
        counts[name.partition(".")[0]] += 1
    assert counts["metrics"] >= 32
    assert counts["objectives"] >= 15
    assert counts["transforms"] >= 9


@pytest.mark.parametrize("tells", TELLS)
@pytest.mark.parametrize("name", DOCSTRINGS)
def test_a_docstring_tells(name, tells):
    assert re.search(TELLS[tells], DOCSTRINGS[name]), f"{name} does not tell its {tells}"
