"""How long a training is, in batches and optimizer steps, from plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def batches_of(n_rows: int, batch_size: int, world: int) -> int:
    """Batches of an epoch; a last one too small to go round `world` processes joins another."""
    is_joined = n_rows > batch_size and 0 < n_rows % batch_size < world
    return math.ceil(n_rows / batch_size) - is_joined


def training_steps(trainer: Mapping[str, Any], n_batches: int) -> tuple[int, float]:
    """Optimizer steps of an epoch of `n_batches`, and of the whole training at most.

    `trainer` has the keys of Lightning's Trainer.

    >>> training_steps({"limit_train_batches": 0.5, "max_epochs": 3}, n_batches=4)
    (2, 6)
    >>> training_steps({"fast_dev_run": True, "max_epochs": 3}, n_batches=4)
    (1, 1)
    """
    if n := int(trainer.get("fast_dev_run") or 0):
        trainer = {**trainer, "limit_train_batches": n, "max_steps": n, "max_epochs": 1}
    if (limit := trainer.get("limit_train_batches")) is not None:
        n_batches = min(n_batches, limit) if isinstance(limit, int) else int(n_batches * limit)
    an_epoch = math.ceil(n_batches / trainer.get("accumulate_grad_batches", 1))
    given = [(trainer.get("max_steps"), 1), (trainer.get("max_epochs"), an_epoch)]
    limits = [n * size for n, size in given if n is not None and n >= 0]
    return an_epoch, min(limits, default=math.inf)
