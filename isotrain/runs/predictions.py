"""Predictions of a run on every example of a split: `predictions/dev.csv`, `test.csv`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isotrain.runs.files import replacing

COLUMNS = ("index", "label", "prediction")


@dataclass(frozen=True)
class Predictions:
    """N examples of one split, each array `[N]`."""

    index: np.ndarray  # number among the examples of the split that have a label
    label: np.ndarray  # class number, or score
    prediction: np.ndarray  # what the task's metrics compare with the label
    logits: np.ndarray | None = None  # [N, C], where labels are classes


def write_predictions(folder: Path, split: str, predictions: Predictions) -> None:
    """Replace the file of a split in one step."""
    logits = [] if predictions.logits is None else [*predictions.logits.T]
    columns = [predictions.index, predictions.label, predictions.prediction, *logits]
    values = np.column_stack(columns)[np.argsort(predictions.index, kind="stable")]
    formats = ["%.0f", *["%.9g"] * (len(columns) - 1)]
    header = ",".join([*COLUMNS, *(f"logit_{k}" for k in range(len(logits)))])
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    with replacing(path_of(folder, split)) as file:
        np.savetxt(file, values, formats, delimiter=",", header=header, comments="")


def read_predictions(folder: Path, split: str) -> Predictions | None:
    """The newest predictions of a run for a split; None if there are none.

    Raises:
        ValueError: the file has something other than numbers.
    """
    if not (path := path_of(folder, split)).is_file():
        return None
    if not (lines := path.read_text(encoding="utf-8").splitlines()[1:]):
        raise ValueError(f"{path} has no prediction")
    values = np.loadtxt(lines, delimiter=",", ndmin=2)
    index, label, prediction = values.T[:3]
    return Predictions(
        index.astype(np.int64), label, prediction, values[:, 3:] if values.shape[1] > 3 else None
    )


def path_of(folder: Path, split: str) -> Path:
    """The file of a split."""
    return folder / "predictions" / f"{split}.csv"
