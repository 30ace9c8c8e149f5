"""Terminal progress: Lightning's bar, with short names for the latest values."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar

from isotrain.runs.keys import parse_key


class Progress(RichProgressBar):
    """Batches of an epoch or evaluation, the time left, and loss, score and isotropy."""

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """The latest values by short name."""
        values: Any = super().get_metrics(trainer, pl_module)
        return short({key: value for key, value in values.items() if key != "v_num"})

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remove the bars; the run's summary replaces them."""
        if self.progress is not None:
            self.progress.live.transient = True
        super().teardown(trainer, pl_module, stage)


def short(values: Mapping[str, float]) -> dict[str, float]:
    """Values named without stage or layer: training, then scores, then isotropy.

    >>> short({"isoscore": 0.2, "val/accuracy": 0.5, "train/loss": 0.7})
    {'loss': 0.7, 'accuracy': 0.5, 'isoscore': 0.2}
    """
    stages = ("train", "val", "test")
    order = {key: (*stages, key.partition("/")[0]).index(key.partition("/")[0]) for key in values}
    by_name = {}
    for key in sorted(values, key=order.__getitem__):
        curve = parse_key(key)
        by_name[curve.metric if curve else key.rpartition("/")[2]] = values[key]
    return by_name
