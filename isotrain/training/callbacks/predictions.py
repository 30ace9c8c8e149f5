"""Store the predictions of every evaluation example, and detect collapsed ones. C classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from isotrain.model.distributed import gather_rows, sum_over_processes
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.types import Batch


class KeptPredictions(pl.Callback):
    """Writes `predictions/dev.csv` at each validation and `test.csv` at a test, over the last one.

    The files end with those of the weights that the scores of the run are of. With several
    processes the first one writes the rows of all.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._seen: list[Tensor] = []  # of each batch: index, label, prediction [B, 3]

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start empty."""
        self._seen = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Look at a batch of dev or test, not of the training rows that are held out."""
        if not dataloader_idx:
            self._keep(pl_module, outputs, batch)

    on_test_start, on_test_batch_end = on_validation_start, on_validation_batch_end

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write dev."""
        self._write(trainer, "dev")

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write test."""
        self._write(trainer, "test")

    def _keep(self, module: Any, outputs: Any, batch: Batch) -> None:
        predictions_B = module.task.predictions(outputs["output"].logits)
        columns = (batch.index, batch.labels, predictions_B)
        self._seen.append(torch.stack([column.float() for column in columns], dim=1))

    def _write(self, trainer: pl.Trainer, split: str) -> None:
        if not self._seen:  # a limit of no batch at all
            return
        known_N3, _ = gather_rows(torch.cat(self._seen))
        self._seen = []
        if trainer.is_global_zero and not trainer.sanity_checking:
            index_N, label_N, prediction_N = known_N3.cpu().numpy().T
            write_predictions(self.folder, split, Predictions(index_N, label_N, prediction_N))


MAJORITY, SPREAD = "val/majority_share", "val/spread"
MOST_ALIKE = 0.99  # share of one class from which on predictions count as collapsed
LEAST_SPREAD = 0.01  # standard deviation of predictions over that of the labels, likewise


class Variety(pl.Callback):
    """Logs at each validation how far the predictions on dev differ from one another.

    Where labels are classes, `val/majority_share` = (rows predicted as the most predicted class)
    / (rows), in [1/C, 1]. Where they are scores, `val/spread` = sd(predictions) / sd(labels), in
    [0, ∞); it is absent where all labels are equal. Rows of all processes count.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums: Tensor | None = None  # of the batches so far, in float64

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start empty."""
        self._sums = None

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the predictions of a batch of dev."""
        if dataloader_idx:  # rows that are held out
            return
        logits_BC = outputs["output"].logits
        predictions_B = pl_module.task.predictions(logits_BC)
        if batch.labels.is_floating_point():
            sums = score_sums(predictions_B, batch.labels)
        else:
            sums = class_counts(predictions_B, logits_BC.shape[1])
        self._sums = sums if self._sums is None else self._sums + sums
        self._key = SPREAD if batch.labels.is_floating_point() else MAJORITY

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log it over all of dev."""
        if self._sums is None:
            return
        sums = self._sums
        if trainer.world_size > 1:
            sums = sum_over_processes(sums)
        value = spread(sums) if self._key == SPREAD else sums.max() / sums.sum()
        if not value.isnan():
            pl_module.log(self._key, value.float().to(pl_module.device), sync_dist=True)


def class_counts(predictions_B: Tensor, n_classes: int) -> Tensor:
    """How often each class is predicted, `[C]`.

    >>> class_counts(torch.tensor([1, 1, 0]), 3).tolist()
    [1.0, 2.0, 0.0]
    """
    return torch.bincount(predictions_B.cpu(), minlength=n_classes).double()


def score_sums(predictions_B: Tensor, labels_B: Tensor) -> Tensor:
    """N, and Σx and Σx² of predictions and labels, from which `spread` follows."""
    p_B, y_B = predictions_B.detach().cpu().double(), labels_B.cpu().double()
    n = torch.tensor(float(len(p_B)), dtype=torch.float64)
    return torch.stack([n, p_B.sum(), p_B.square().sum(), y_B.sum(), y_B.square().sum()])


def spread(sums: Tensor) -> Tensor:
    """sd(predictions) / sd(labels), population standard deviations; NaN for equal labels.

    >>> p, y = torch.tensor([0.4, 0.6]), torch.tensor([0.0, 1.0])
    >>> spread(score_sums(p, y))
    tensor(0.2000, dtype=torch.float64)
    """
    n, p, pp, y, yy = sums
    of_p, of_y = ((squares / n - (x / n) ** 2).clamp_min(0) for x, squares in ((p, pp), (y, yy)))
    return torch.where(of_y > 0, (of_p / of_y).sqrt(), torch.nan)


def degenerate(scores: Mapping[str, float], monitor: str) -> str:
    """Why a run is degenerate, in words; empty where it is not, or where nothing tells.

    It is where at least 99 % of the predictions on dev are one class, where predicted scores have
    a standard deviation below 1 % of that of the labels, or where the monitored score is NaN (a
    correlation of constant predictions is). A low score alone does not make a run degenerate.
    Cosines of rows in a narrow cone may be that close to one another and yet in the right order,
    which a correlation sees: it is the score that tells.

    >>> degenerate({"val/accuracy": 0.5, "val/majority_share": 1.0}, "val/accuracy")
    '100 % of the predictions on dev are one class'
    >>> degenerate({"val/accuracy": 0.5, "val/majority_share": 0.98}, "val/accuracy")
    ''
    """
    if (share := scores.get(MAJORITY, 0.0)) >= MOST_ALIKE:
        return f"{100 * share:.4g} % of the predictions on dev are one class"
    if (ratio := scores.get(SPREAD, 1.0)) < LEAST_SPREAD:
        return (
            "the predicted scores on dev are almost equal: their standard deviation is "
            f"{100 * ratio:.2g} % of that of the gold scores (cosines can be so within a narrow "
            "cone; a correlation ignores scale and may be high all the same)"
        )
    return f"{monitor} is not a number" if math.isnan(scores.get(monitor, 0.0)) else ""
