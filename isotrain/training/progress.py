"""The progress bar: loss, task score and one isotropy value."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar


class Progress(RichProgressBar):
    """Lightning's rich bar with short names (`loss`, `accuracy`, `isoscore`)."""

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """The values logged for the bar, without their stage."""
        values: dict[str, Any] = {
            key.rpartition("/")[2]: value for key, value in trainer.progress_bar_metrics.items()
        }
        return values
