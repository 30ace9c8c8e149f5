"""`metrics.jsonl`: one line per logged row, always written, the record that pages read."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only


class JsonlLogger(Logger):
    """Appends `{"step": ..., "time_s": ..., key: value, ...}` and flushes, row by row.

    Args:
        path: the file; an old one is replaced.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._started = time.perf_counter()
        self._begun = False

    @property
    def name(self) -> str:
        """Name of this logger."""
        return "jsonl"

    @property
    def version(self) -> int:
        """One file per run folder."""
        return 0

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """The configuration stands in `config.yaml` and `result.json`."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """One line; a NaN or infinity is written as such (`NaN`, `Infinity`)."""
        row = {"step": step, "time_s": round(time.perf_counter() - self._started, 3), **metrics}
        with self.path.open("a" if self._begun else "w", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        self._begun = True


def read_rows(path: str | Path) -> list[dict[str, float]]:
    """The rows of a metrics.jsonl, in order; none when nothing was logged.

    A last line that a killed run left unfinished is dropped.
    """
    rows: list[dict[str, float]] = []
    if not Path(path).is_file():
        return rows
    for line in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            rows.append(json.loads(line))
    return rows
