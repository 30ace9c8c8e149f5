"""The curves of a run as one PNG."""

from __future__ import annotations

from pathlib import Path

from isotrain.pages.figures import curves
from isotrain.pages.rows import Rows


def draw_curves(rows: Rows, path: str | Path, title: str, score: str) -> None:
    """Write `isotrain.pages.figures.curves` into a file."""
    curves(rows, title, score).savefig(path, dpi=110)
