"""`metrics.jsonl`: one line per logged row, the record that pages, studies and people read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isotrain.results import as_json, nulls_as_nan


class RowFile:
    """Appends `{"step": ..., "time_s": ..., key: value, ...}` and flushes, row by row.

    A NaN or infinity is null, as JSON has no number for it.

    Args:
        path: the file; an old one is replaced at the first row, unless `cut` keeps some of it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.n_rows, self.n_bytes = 0, 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(as_json(dict(row)), allow_nan=False)
        with self.path.open("ab" if self.n_bytes else "wb") as lines:
            lines.truncate(self.n_bytes)  # of a line that a full disk cut
            self.n_bytes += lines.write((line + "\n").encode())
        self.n_rows += 1

    def cut(self, n_bytes: int) -> list[dict[str, float]]:
        """The rows in the first `n_bytes`, which are kept; what follows is dropped."""
        if n_bytes:
            os.truncate(self.path, n_bytes)
        rows = read_rows(self.path) if n_bytes else []
        self.n_rows, self.n_bytes = len(rows), n_bytes
        return rows


def read_rows(path: str | Path) -> list[dict[str, float]]:
    """The rows of a metrics.jsonl, in order; none when nothing was logged.

    A last line that a killed run left unfinished is dropped, and a null is NaN.
    """
    rows: list[dict[str, float]] = []
    if not Path(path).is_file():
        return rows
    for line in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            rows.append(nulls_as_nan(json.loads(line)))
    return rows
