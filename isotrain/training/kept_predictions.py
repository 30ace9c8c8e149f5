"""Keeps what the model predicts for every row of dev and test, for comparisons row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from isotrain.geometry.gather import gather_rows
from isotrain.predictions import Predictions, write_predictions
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
