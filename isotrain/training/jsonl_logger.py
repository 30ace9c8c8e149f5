"""`metrics.jsonl`: one line per logged row, always written, the record that pages read."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from isotrain.config.redaction import redacted
from isotrain.results import as_json, nulls_as_nan


class JsonlLogger(Logger):
    """Appends `{"step": ..., "time_s": ..., key: value, ...}` and flushes, row by row.

    Every other logger stands behind it and gets a row first. One that says in `n_rows_held` how
    many rows it has from an earlier process has each row once after a resume, as those of W&B
    and TensorBoard do; any other may have the newest one twice after a kill. A logger that fails
    is left out from then on, with a notice; it never costs a run. A process other than the first
    writes nothing.

    Args:
        path: the file; an old one is replaced.
        others: loggers that get the same rows.
    """

    def __init__(self, path: str | Path, others: Sequence[Logger] = ()) -> None:
        super().__init__()
        self.path, self.others = Path(path), list(others)
        self._held = [0] * len(self.others)  # rows that each of them has from an earlier process
        self._started = time.perf_counter()
        self.n_rows, self.n_bytes = 0, 0

    @property
    def name(self) -> str:
        """Name of this logger."""
        return "jsonl"

    @property
    def version(self) -> int:
        """One file per run folder."""
        return 0

    @rank_zero_only
    def resume(self, n_bytes: int) -> None:
        """Keep the first `n_bytes` of the file, as a checkpoint recorded them, and go on there.

        The other loggers get the kept rows that they lack. How many they have, a logger says
        itself in `n_rows_held`; without that it is taken to have every row of the file.
        """
        n_before = len(read_rows(self.path))
        if n_bytes:
            os.truncate(self.path, n_bytes)
        rows = read_rows(self.path) if n_bytes else []
        self.n_rows, self.n_bytes = len(rows), n_bytes
        self._started -= rows[-1]["time_s"] if rows else 0.0
        self._held = [getattr(other, "n_rows_held", n_before) for other in self.others]
        for number, row in enumerate(rows):
            kept = {key: value for key, value in row.items() if key not in ("step", "time_s")}
            self._pass_on(number, kept, int(row["step"]))

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Passed on; for the file, the configuration stands in `config.yaml`."""
        for other in list(self.others):
            self._guarded(other, lambda other=other: other.log_hyperparams(params))

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """One line; a NaN or infinity is null, as JSON has no number for it."""
        self._pass_on(self.n_rows, dict(metrics), step)
        row = {"step": step, "time_s": round(time.perf_counter() - self._started, 3), **metrics}
        line = json.dumps(as_json(row), allow_nan=False)
        with self.path.open("ab" if self.n_bytes else "wb") as lines:
            lines.truncate(self.n_bytes)  # of a line that a full disk cut
            self.n_bytes += lines.write((line + "\n").encode())
        self.n_rows += 1

    @rank_zero_only
    def save(self) -> None:
        """Flush the others; the file is flushed at every row."""
        for other in list(self.others):
            self._guarded(other, other.save)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the others."""
        for other in list(self.others):
            self._guarded(other, lambda other=other: other.finalize(status))

    def _pass_on(self, number: int, metrics: dict[str, float], step: int | None) -> None:
        for other, held in zip(list(self.others), list(self._held), strict=True):
            if number >= held:
                self._guarded(other, lambda other=other: other.log_metrics(metrics, step))

    def _guarded(self, other: Logger, action: Any) -> None:
        try:
            action()
        except Exception as error:  # whatever a third party's logger may raise
            place = self.others.index(other)
            del self.others[place], self._held[place]
            print(left_out(type(other).__name__, error))


def left_out(name: str, error: Exception) -> str:
    """What is said of a logger that fails: the run goes on without it."""
    reason = redacted(f"{type(error).__name__}: {error}")
    return f"{name} failed and is left out from here on ({reason}); metrics.jsonl has every row"


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
