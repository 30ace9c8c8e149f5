"""Save predictions of every evaluation, and detect collapsed predictions. C classes."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from isotrain.model.distributed import all_gather
from isotrain.runs.predictions import Predictions, read_predictions, write_predictions
from isotrain.training.temperature import scaled_loss
from isotrain.types import Batch

MAJORITY, SPREAD = "val/predicted_majority_share", "val/spread"
MOST_ALIKE = 0.99  # share of one class from which predictions count as collapsed
LEAST_SPREAD = 0.01  # ratio of standard deviations, predictions to labels, likewise


class CollapseMonitor(pl.Callback):
    """Write the predictions of every evaluation; log a collapse measure on dev.

    `predictions/dev.csv` is overwritten at each validation and `test.csv` at each test, with logits
    if labels are classes. Then `val/predicted_majority_share` = (examples predicted as the most
    predicted class) / (examples), in [1/C, 1]; the share of the most frequent label is
    `label_majority` in `result.json`; and `test/scaled_loss`, in [0, ∞), is the test log loss in
    nats after temperature scaling on dev. If labels are scores, `val/spread` = sd(predictions) /
    sd(labels), in [0, ∞). Both measures are absent if all labels are equal: predictions can then be
    as equal. Examples of all processes count.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._seen: list[Tensor] = []  # index, label, prediction and logits of a batch [B, 3 + C]

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Reset."""
        self._seen = []

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, *_: Any, **__: Any
    ) -> None:
        """Store the predictions of a dev or test batch; held-out examples have no outputs."""
        if outputs is not None:
            logits_BC = outputs["output"].logits
            columns = [batch.index, batch.labels, outputs["predictions"]]
            if not batch.labels.is_floating_point():  # they are classes
                columns += logits_BC.T
            dtype = torch.promote_types(logits_BC.dtype, torch.float32)
            self._seen.append(torch.stack([column.to(dtype) for column in columns], 1))

    on_test_start, on_test_batch_end = on_validation_start, on_validation_batch_end

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the majority share or spread, and write dev predictions."""
        if not self._seen:  # evaluation is limited to 0 batches
            return
        rows = all_gather(torch.cat(self._seen))
        if bool((rows[:, 1] != rows[0, 1]).any()):
            if rows.shape[1] == 3:  # scores
                key, value = SPREAD, spread(rows[:, 2], rows[:, 1])
            else:
                key, value = MAJORITY, majority_share(rows[:, 2].long())
            value = value.float().to(pl_module.device)
            pl_module.log(key, value, logger=False, sync_dist=True)
        self._write(trainer, "dev", rows)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write test predictions, and log the test loss with the temperature fitted on dev."""
        if self._seen:
            test = self._write(trainer, "test", all_gather(torch.cat(self._seen)))
            dev = read_predictions(self.folder, "dev") if trainer.is_global_zero else None
            loss = None if dev is None else _scaled_loss(test, dev)
            if loss is not None:
                value = torch.tensor(loss, dtype=torch.float32)
                pl_module.log("test/scaled_loss", value, logger=False, rank_zero_only=True)

    def _write(self, trainer: pl.Trainer, split: str, rows: Tensor) -> Predictions:
        (index_N, label_N, prediction_N), logits_CN = np.split(rows.float().cpu().numpy().T, [3])
        logits_NC = logits_CN.T if len(logits_CN) else None
        predictions = Predictions(index_N, label_N, prediction_N, logits_NC)
        if trainer.is_global_zero and not trainer.sanity_checking:
            write_predictions(self.folder, split, predictions)
        return predictions


def _scaled_loss(test: Predictions, dev: Predictions) -> float | None:
    """Test loss with the temperature fitted on dev; None if undefined."""
    if test.logits is None or dev.logits is None:
        return None
    pairs = [(torch.from_numpy(x.logits), torch.from_numpy(x.label).long()) for x in (test, dev)]
    return scaled_loss(*pairs[0], *pairs[1])


def majority_share(predictions_N: Tensor) -> Tensor:
    """The share of the most predicted class, in [1/C, 1]."""
    counts_C = torch.bincount(predictions_N.cpu()).double()
    return counts_C.max() / counts_C.sum()


def spread(predictions_N: Tensor, labels_N: Tensor) -> Tensor:
    """sd(predictions) / sd(labels), population standard deviations.

    >>> spread(torch.tensor([0.4, 0.6]), torch.tensor([0.0, 1.0]))
    tensor(0.2000, dtype=torch.float64)
    """
    sd_2 = torch.stack([predictions_N, labels_N]).cpu().double().std(dim=1, correction=0)
    return sd_2[0] / sd_2[1]


def degenerate(scores: Mapping[str, float], monitor: str) -> str:
    """Why the predictions of a run count as collapsed; empty if they do not.

    Collapsed: at least 99 % of dev predictions are one class; predicted scores have a standard
    deviation below 1 % of that of the labels; or the monitored score is NaN. Where all labels are
    equal, neither measure is there and no predictions count as collapsed: a correlation is
    undefined because of the labels. A low score alone is not a collapse. Cosines in a narrow cone
    may be that close and still correctly ranked, which the score then shows.

    >>> degenerate({"val/accuracy": 0.5, "val/predicted_majority_share": 1.0}, "val/accuracy")
    '100 % of the predictions on dev are one class'
    >>> degenerate({"val/accuracy": 0.5, "val/predicted_majority_share": 0.98}, "val/accuracy")
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
    is_nan = math.isnan(scores.get(monitor, 0.0)) and {MAJORITY, SPREAD} & scores.keys()
    return f"{monitor} is not a number" if is_nan else ""
