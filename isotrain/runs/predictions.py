"""Predictions of a run on every example of a split: `predictions/dev.csv`, `test.csv`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isotrain.runs.files import replace_text

COLUMNS = ("index", "label", "prediction")


@dataclass(frozen=True)
class Predictions:
    """N examples of one split, each array `[N]`."""

    index: np.ndarray  # number among the examples of the split that have a label
    label: np.ndarray  # class number, or score
    prediction: np.ndarray  # what the task's metrics compare with the label


def write_predictions(folder: Path, split: str, found: Predictions) -> None:
    """Replace the file of a split in one step."""
    order = np.argsort(found.index, kind="stable")
    columns = (x[order].tolist() for x in (found.index, found.label, found.prediction))
    lines = (f"{i:.0f},{label:.9g},{p:.9g}\n" for i, label, p in zip(*columns, strict=True))
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    replace_text(path_of(folder, split), ",".join(COLUMNS) + "\n" + "".join(lines))


def read_predictions(folder: Path, split: str) -> Predictions | None:
    """The newest predictions of a run for a split; None if there are none.

    Raises:
        ValueError: the file is not as it was written.
    """
    path = path_of(folder, split)
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as lines:
        heading = lines.readline().strip()
        if heading != ",".join(COLUMNS):
            raise ValueError(f"{path} must begin with {','.join(COLUMNS)}, it has {heading!r}")
        values = np.loadtxt(lines, delimiter=",", ndmin=2)
    if values.shape[1] != len(COLUMNS):
        raise ValueError(f"{path} must have {len(COLUMNS)} columns, it has {values.shape[1]}")
    return Predictions(values[:, 0].astype(np.int64), values[:, 1], values[:, 2])


def path_of(folder: Path, split: str) -> Path:
    """The file of a split."""
    return folder / "predictions" / f"{split}.csv"
