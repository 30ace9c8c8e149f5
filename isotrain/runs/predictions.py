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


def write_predictions(folder: Path, split: str, found: Predictions) -> None:
    """Replace the file of a split in one step."""
    columns = [found.index, found.label, found.prediction]
    columns += [] if found.logits is None else [*found.logits.T]
    values = np.column_stack(columns)[np.argsort(found.index, kind="stable")]
    numbers = ["%.0f", *["%.9g"] * (len(columns) - 1)]
    names = heading(len(columns) - len(COLUMNS))
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    with replacing(path_of(folder, split)) as file:
        np.savetxt(file, values, numbers, delimiter=",", header=names, comments="")


def read_predictions(folder: Path, split: str) -> Predictions | None:
    """The newest predictions of a run for a split; None if there are none.

    Raises:
        ValueError: the file is not as it was written.
    """
    path = path_of(folder, split)
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as lines:
        head = lines.readline().strip()
        n_classes = head.count(",logit_")
        if head != heading(n_classes):
            raise ValueError(f"{path} must begin with {heading(n_classes)}, it has {head!r}")
        values = np.loadtxt(lines, delimiter=",", ndmin=2)
    if values.shape[1] != len(COLUMNS) + n_classes:
        wanted = len(COLUMNS) + n_classes
        raise ValueError(f"{path} must have {wanted} columns, it has {values.shape[1]}")
    logits = values[:, len(COLUMNS) :] if n_classes else None
    return Predictions(values[:, 0].astype(np.int64), values[:, 1], values[:, 2], logits)


def heading(n_classes: int) -> str:
    """The first line of a file.

    >>> heading(2)
    'index,label,prediction,logit_0,logit_1'
    """
    return ",".join([*COLUMNS, *(f"logit_{k}" for k in range(n_classes))])


def path_of(folder: Path, split: str) -> Path:
    """The file of a split."""
    return folder / "predictions" / f"{split}.csv"
