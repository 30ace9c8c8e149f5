"""All processes of a job train with one configuration, or not at all."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities import rank_zero_only
from torch import distributed

from isotrain.model.distributed import n_processes


def process_rank() -> int:
    """Number of this process in its job, also before the processes know each other."""
    rank: int = getattr(rank_zero_only, "rank", 0)
    return rank


class SameConfig(pl.Callback):
    """Compares the hash of the configuration over processes before anything is computed.

    Processes that a launcher started with different overrides would otherwise train one job
    with several sets of hyper-parameters, silently.
    """

    def __init__(self, config_hash: str) -> None:
        super().__init__()
        self.config_hash = config_hash

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Stop every process unless all have the same hash."""
        if n_processes() == 1:
            return
        found: list[Any] = [None] * n_processes()
        distributed.all_gather_object(found, self.config_hash)
        if len(set(found)) > 1:
            raise RuntimeError(
                "the processes of a job must share one configuration, and their hashes are "
                f"{', '.join(map(str, found))}; start every rank with the same overrides"
            )
