"""The typed root of a run's configuration: its keys and their legal values."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from hydra.core.config_store import ConfigStore

from isotrain.console import UserError

TokenRows = StrEnum("TokenRows", ["all", "no_special"])  # tokens of a token site
Batching = StrEnum("Batching", ["length", "random"])  # how training examples are grouped
View = StrEnum("View", ["cls", "tokens", "mean", "last"])  # embeddings of a layer that are measured
Select = StrEnum("Select", ["last", "best", "holdout"])  # which weights a run ends with
WeightAs = StrEnum("WeightAs", ["absolute", "share_of_task_gradient"])  # unit of a weight
WeightSchedule = StrEnum("WeightSchedule", ["constant", "linear_decay"])  # over a run


def number(default: Any, **limits: float) -> Any:
    """A key whose number must lie within limits, as pydantic names them: ge, gt, le, lt."""
    return field(default=default, metadata=limits)


@dataclass
class DataConfig:
    """Source of the examples, size and order of batches, perturbations of the training data."""

    path: str | None = None
    hub: str | None = None
    name: str | None = None
    revision: str | None = None
    split: list[float] = field(default_factory=lambda: [0.8, 0.1, 0.1])
    split_seed: int = number(0, ge=0)
    batch_size: int = number(32, ge=1)
    eval_batch_size: int = number(64, ge=1)
    batching: Batching = Batching.length
    n_train: int | None = number(None, ge=1)
    n_dev: int | None = number(None, ge=1)
    n_test: int | None = number(None, ge=1)
    label_skew: float = number(0.0, ge=0, lt=1)  # the last class needs examples
    label_noise: float = number(0.0, ge=0, le=1)
    hypothesis_only: bool = False
    holdout: float | None = number(None, gt=0, lt=1)


@dataclass
class TrainingConfig:
    """Options of training."""

    warmup_fraction: float = number(0.1, ge=0, le=1)
    head_lr_factor: float = number(1.0, ge=0)
    layer_decay: float = number(1.0, gt=0, le=1)
    reinit_blocks: int = number(0, ge=0)
    solved_head: bool = False
    frozen_dropout: bool = False
    prefill_batches: int = number(8, ge=1)
    refit_rows: int = number(16384, ge=2)
    select: Select = Select.last
    test_untrained: bool = False
    objective_weight_as: WeightAs = WeightAs.absolute
    objective_weight_schedule: WeightSchedule = WeightSchedule.constant


@dataclass
class MonitorConfig:
    """Options of the isotropy monitor."""

    max_rows: int = number(1024, ge=2)
    views: list[View] = field(default_factory=lambda: list(View)[:3])
    every_steps: int = number(0, ge=0)
    map_rows: int = number(512, ge=0)
    headline: list[str] | None = None


@dataclass
class SpeedConfig:
    """Shortcuts of a training step."""

    dropout: bool = True
    last_block: bool = True
    packing: bool = True
    frozen_prefix: bool = True
    prefix_gb: float = 4.0
    compile: bool = False


@dataclass
class CheckpointConfig:
    """Options of checkpoints."""

    every_steps: int = number(200, ge=0)
    every_s: float = number(60.0, ge=0)
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
    step: Any = None
    objective: Any = field(default_factory=dict)
    metric: Any = field(default_factory=dict)
    optimizer: Any = None
    schedule: Any = None
    trainer: Any = None
    logger: Any = field(default_factory=dict)
    callbacks: Any = field(default_factory=dict)
    source: Any = None
    experiment: Any = None
    names: dict[str, str] = field(default_factory=dict)
    init_from: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    seed: int = number(0, ge=0, lt=2**32)
    site: list[str] = field(default_factory=lambda: ["pooled"])
    rows: TokenRows = TokenRows.all
    threads: int | None = number(None, ge=1)
    rank_timeout_s: float = number(1800.0, gt=0)
    output_dir: str = "runs"
    cache_dir: str | None = "${output_dir}/.cache"
    rerun: bool = False
    report: bool = True
    method: str | None = None
    study: str | None = None
    search: str | None = None
    trial: int | None = None


SECTIONS = {
    "": RunConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "monitor": MonitorConfig,
    "checkpoint": CheckpointConfig,
    "speed": SpeedConfig,
}
MOST_PROCESSES = max(64, os.cpu_count() or 1)  # of a machine
NAMED = ("freezing", "isotropy", "optimizer", "peft")  # groups whose chosen file `names` has
NOT_CONTENT = (  # keys that change no number and no record of a run: they do not name it
    *("cache_dir", "logger", "names", "output_dir", "rank_timeout_s", "report", "rerun"),
    *("method", "study", "search", "trial"),
    *("checkpoint.every_steps", "checkpoint.every_s", "checkpoint.final"),
    *("monitor.headline", "monitor.map_rows", "trainer.strategy", "trainer.profiler"),
    *("trainer.enable_model_summary", "trainer.enable_progress_bar"),
)  # trainer.log_every_n_steps is content: it says which records metrics.jsonl has
# Keys that may say only where data or weights are: for which target, and how they begin then.
LOCATIONS: dict[str, tuple[str | None, str | tuple[str, ...]]] = {
    "source.root": ("isotrain.tasks.data.sources.LocalSource", ""),
    "encoder.name": ("isotrain.encoders.huggingface.load_encoder", ("/", "./", "../")),
    "init_from": (None, ""),
    "data.path": (None, ""),
    "data.revision": (None, ""),
}
READS = ("task", "source", "encoder", "init_from")  # keys that decide which files a run reads
READS_DATA = ("path", "hub", "name", "revision")  # likewise, of the section data


class Schema(NamedTuple):
    """Keys and groups of a kind of configuration."""

    name: str  # to Hydra
    label: str  # in messages
    sections: Mapping[str, Any]  # dotted section to dataclass; "" = the whole

    def register(self) -> None:
        """Register the schema with Hydra."""
        ConfigStore.instance().store(name=self.name, node=self.sections[""])


RUN = Schema("run_schema", "a run", SECTIONS)


def n_processes(trainer: Mapping[str, Any]) -> int:
    """Number of processes requested by a trainer's keys on this machine, at least 1.

    `devices` is their number, a list of devices, or `auto`: one process for each GPU. Only `auto`
    imports torch, which takes seconds.

    Raises:
        ValueError: any other value.

    >>> n_processes({}), n_processes({"devices": 2}), n_processes({"devices": [0, 1]})
    (1, 2, 2)
    """
    n_requested = number_asked_for(trainer.get("devices", 1))
    if n_requested is not None:
        return n_requested
    if trainer.get("accelerator", "auto") not in ("auto", "gpu", "cuda"):
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def number_asked_for(devices: Any) -> int | None:
    """Number of processes given by `trainer.devices`; None for `auto`.

    Raises:
        ValueError: it is neither such a number nor a list of different devices nor `auto`.
    """
    if devices == "auto":
        return None
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        if devices and all(type(k) is int for k in devices) and len(set(devices)) == len(devices):
            return len(devices)
    elif re.fullmatch("[0-9]{1,4}", str(devices)) and 0 < int(devices) <= MOST_PROCESSES:
        return int(devices)
    raise UserError(
        f"trainer.devices must be a number of processes from 1 to {MOST_PROCESSES}, a list of "
        f"different devices, or auto, got {str(devices)[:80]}"
    )


def batches_of(n_rows: int, batch_size: int, world: int) -> int:
    """Batches per epoch; a last one with fewer examples than processes is merged into another."""
    is_joined = n_rows > batch_size and 0 < n_rows % batch_size < world
    return math.ceil(n_rows / batch_size) - is_joined


def training_steps(trainer: Mapping[str, Any], n_batches: int) -> tuple[int, int]:
    """Optimizer steps per epoch of `n_batches`, and the maximum of the whole training.

    `trainer` has the keys of Lightning's Trainer.

    Raises:
        ValueError: neither epochs nor steps are limited.

    >>> training_steps({"limit_train_batches": 0.5, "max_epochs": 3}, n_batches=4)
    (2, 6)
    >>> training_steps({"fast_dev_run": True, "max_epochs": 3}, n_batches=4)
    (1, 1)
    """
    if n := int(trainer.get("fast_dev_run") or 0):
        trainer = {**trainer, "limit_train_batches": n, "max_steps": n, "max_epochs": 1}
    limit = trainer.get("overfit_batches") or trainer.get("limit_train_batches")
    if limit is not None:
        n_batches = min(n_batches, limit) if isinstance(limit, int) else int(n_batches * limit)
    steps_per_epoch = math.ceil(n_batches / trainer.get("accumulate_grad_batches", 1))
    bounds = [(trainer.get("max_steps"), 1), (trainer.get("max_epochs"), steps_per_epoch)]
    limits = [n * size for n, size in bounds if n is not None and n >= 0]
    if not limits:
        raise UserError("training would never end; set trainer.max_epochs or trainer.max_steps")
    return steps_per_epoch, min(limits)
