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


@pytest.mark.parametrize("tells", TELLS)
def test_docstrings_tell(tells):
    assert len(DOCSTRINGS) >= 56
    silent = [name for name, text in DOCSTRINGS.items() if not re.search(TELLS[tells], text)]
    assert silent == []
