"""The typed root of a run's configuration: its keys, their types, their legal values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore


class TokenRows(StrEnum):
    """Rows of a token site."""

    all = "all"
    no_special = "no_special"


class Batching(StrEnum):
    """How training rows are grouped."""

    length = "length"
    random = "random"


class View(StrEnum):
    """Rows of a layer that the monitor measures."""

    cls = "cls"
    tokens = "tokens"
    mean = "mean"


class Select(StrEnum):
    """Whose weights a run ends with."""

    last = "last"
    best = "best"
    holdout = "holdout"


@dataclass
class DataConfig:
    """Sizes and order of batches, and changes of the training data."""

    batch_size: int = 32
    eval_batch_size: int = 64
    batching: Batching = Batching.length
    fraction: float = 1.0
    n_train: int | None = None
    label_skew: float = 0.0
    label_noise: float = 0.0
    hypothesis_only: bool = False
    holdout: float = 0.1


@dataclass
class TrainingConfig:
    """What the training module takes beside the optimizer."""

    warmup_fraction: float = 0.1
    head_lr_factor: float = 1.0
    layer_decay: float = 1.0
    reinit_blocks: int = 0
    frozen_dropout: bool = True
    prefill_batches: int = 8
    refit_rows: int = 16384
    select: Select = Select.last
    patience: int | None = None


@dataclass
class MonitorConfig:
    """What the isotropy monitor takes."""

    max_rows: int = 1024
    views: list[View] = field(default_factory=lambda: list(View))
    every_steps: int = 0
    map_rows: int = 512
    headline: list[str] | None = None


@dataclass
class CheckpointConfig:
    """What is kept on disk while a run trains, and after it."""

    every_steps: int = 200
    final: bool = True


@dataclass
class RunConfig:
    """Keys of a run; a group's own keys are those of its target's signature."""

    task: Any = None
    encoder: Any = None
    pooling: Any = None
    isotropy: Any = None
    freezing: Any = None
    peft: Any = None
    objective: Any = field(default_factory=dict)
    metric: Any = field(default_factory=dict)
    optimizer: Any = None
    schedule: Any = None
    trainer: Any = None
    logger: Any = field(default_factory=dict)
    source: Any = None
    experiment: Any = None
    init_from: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    seed: int = 0
    site: list[str] = field(default_factory=lambda: ["pooled"])
    rows: TokenRows = TokenRows.all
    sync: bool = True
    threads: int | None = None
    output_dir: str = "runs"
    cache_dir: str | None = "${output_dir}/.cache"
    rerun: bool = False
    report: bool = True


SECTIONS = {
    "": RunConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "monitor": MonitorConfig,
    "checkpoint": CheckpointConfig,
}
NOT_CONTENT = (  # keys that change no number and no row of a run: they do not name it
    *("cache_dir", "logger", "output_dir", "report", "rerun"),
    *("checkpoint.every_steps", "checkpoint.final", "monitor.headline", "monitor.map_rows"),
)  # trainer.log_every_n_steps is content: it says which rows metrics.jsonl has


def register() -> None:
    """Make the schema known to Hydra."""
    ConfigStore.instance().store(name="run_schema", node=RunConfig)
