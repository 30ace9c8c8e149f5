"""The composition root: a configuration becomes the parts of a run. Only here, `instantiate`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy, Strategy

from isotrain.config.compose import content_hash
from isotrain.config.processes import n_processes
from isotrain.config.rules import spans_mistake
from isotrain.geometry.cloud import shared
from isotrain.metrics.suite import flat, needs
from isotrain.model import IsotropicModel
from isotrain.training.checkpoints import AtomicFiles, Checkpoints
from isotrain.training.data import TaskData
from isotrain.training.extra_losses import ExtraLosses, check_reads
from isotrain.training.fine_tuning import FineTuning
from isotrain.training.isotropy_monitor import IsotropyMonitor
from isotrain.training.optim import count_parameters
from isotrain.training.progress import Progress
from isotrain.training.same_config import SameConfig, process_rank
from isotrain.types import Encoder, Objective, Pooling, RowMetric, RowTransform, Source, Task


@dataclass(frozen=True)
class Experiment:
    """Everything `run` needs."""

    module: FineTuning
    data: TaskData
    trainer: pl.Trainer
    n_parameters: dict[str, int]
    source_id: str  # of the encoder's weights
    loggers: dict[str, Callable[..., Logger]]  # (save_dir, name) -> logger: each opens a run
    checkpoints: Checkpoints


def data_revision(cfg: DictConfig) -> str:
    """What the source holds of the task's data set now; reads no row."""
    task: Task = _made(cfg.task)
    return str(_made(cfg.source).revision_of(task.data_set))


def build(cfg: DictConfig, folder: Path) -> Experiment:
    """The parts of one run, wired; reads data and weights, trains nothing.

    Raises:
        ValueError: parts that do not fit together; the keys to change are named.
    """
    # Task and pooling first: whether they fit is known before any weights are loaded.
    task: Task = _made(cfg.task)
    pooling: Pooling = _made(cfg.pooling)
    if mistake := spans_mistake(pooling.reads, task.n_spans, task.name):
        raise ValueError(mistake)
    n_vectors = pooling.n_vectors(task.n_sequences, task.n_spans)
    source: Source = _made(cfg.source)
    encoder: Encoder = _made(cfg.encoder)
    if encoder.is_causal and pooling.reads == "first":
        raise ValueError(
            "this pooling takes the first token, and in a causal encoder that has seen nothing of "
            "the sentence; use pooling=last or pooling=mean"
        )
    _made(cfg.freezing, encoder=encoder)
    transforms: dict[str, RowTransform] = {
        site: _made(cfg.isotropy, width=encoder.width) for site in cfg.site
    }
    model = IsotropicModel(
        encoder,
        pooling,
        task.build_head(encoder.width, n_vectors),
        transforms,
        rows=cfg.rows.value,
        sync=cfg.sync,
    )
    n_parameters = count_parameters(model)
    if n_parameters["trainable"] == 0:
        raise ValueError(
            f"nothing would train: the head of task={task.name} form={task.form} has no "
            "parameters and freezing leaves none of the encoder's; use another freezing"
        )
    objectives: dict[str, Objective] = {
        name: _objective(node, encoder.width) for name, node in cfg.objective.items()
    }
    check_reads(objectives, n_vectors, encoder.n_blocks)
    module = FineTuning(
        model,
        task,
        ExtraLosses(objectives),
        optimizer=instantiate(cfg.optimizer),
        schedule=instantiate(cfg.schedule),
        warmup_fraction=cfg.training.warmup_fraction,
        head_lr_factor=cfg.training.head_lr_factor,
        prefill_batches=cfg.training.prefill_batches,
        refit_rows=cfg.training.refit_rows,
    )
    data = TaskData(
        task,
        source,
        encoder.tokenizer,
        cfg.data.batch_size,
        cfg.data.eval_batch_size,
        cfg.data.batching.value,
        cfg.seed,
        Path(cfg.cache_dir) if cfg.cache_dir else None,
    )

    metrics: dict[str, RowMetric] = {}
    for name, node in cfg.metric.items():
        metrics[name] = instantiate(node.function)
    _try_metrics(metrics, cfg.monitor.max_rows, encoder.width)
    checkpoints = Checkpoints(folder / "resume.ckpt", cfg.checkpoint.every_steps)
    callbacks: list[Callback] = [SameConfig(content_hash(cfg)), checkpoints]
    if metrics:
        callbacks.append(IsotropyMonitor(metrics, cfg.monitor.max_rows, cfg.monitor.headline))
    watched = sys.stdout.isatty() and process_rank() == 0
    if watched:
        callbacks.append(Progress(refresh_rate=1))
    trainer: pl.Trainer = _made(
        cfg.trainer,
        plugins=[AtomicFiles()],
        default_root_dir=str(folder),
        strategy=_strategy(cfg),
        logger=False,
        callbacks=callbacks,
        enable_progress_bar=watched,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    _try(module)
    data.setup()  # last: it fills the token cache
    _check_sizes(cfg, data, trainer, encoder.max_positions)
    _check_labels(metrics, objectives, data)
    return Experiment(
        module,
        data,
        trainer,
        n_parameters,
        encoder.source_id,
        {str(name): instantiate(node) for name, node in cfg.logger.items()},
        checkpoints,
    )


def _made(node: DictConfig, **arguments: Any) -> Any:
    """The part of a node, called outside of Hydra, which would wrap what it raises.

    Raises:
        ValueError: its constructor does not take what the node gives; the node is named.
    """
    make = instantiate(node, _partial_=True, _convert_="all")
    try:
        return make(**arguments)
    except TypeError as error:
        path, target = node._get_full_key(""), node["_target_"]
        raise ValueError(
            f"{path} cannot be made: {error}; give the keys that {target} takes"
        ) from error


def _objective(node: DictConfig, width: int) -> Objective:
    """An objective; one with weights of its own is told the width of the rows it reads."""
    takes = inspect.signature(get_object(node["_target_"])).parameters
    return _made(node, **({"width": width} if "width" in takes else {}))  # type: ignore[no-any-return]


def _try(module: FineTuning) -> None:
    """Bad values of the optimizer and the schedule, told before training begins."""
    name = "optimizer"
    try:
        trial = module.optimizer([torch.nn.Parameter(torch.zeros(1))])
        name = "schedule.name"
        module.schedule(optimizer=trial, num_warmup_steps=0, num_training_steps=1)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def _try_metrics(metrics: dict[str, RowMetric], max_rows: int, width: int) -> None:
    """Values that no cloud of this run could be measured with, told before training begins."""
    rows = torch.randn(min(max_rows, 4096), width, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(len(rows)) % 2
    with shared(rows):
        for name, metric in metrics.items():
            try:
                of_labels = needs(metric) == "labels"
                found = metric(rows, labels=labels) if of_labels else metric(rows)
            except Exception as error:  # of a metric of the user's own, whatever it is
                problem = str(error) if isinstance(error, ValueError) else repr(error)
                raise ValueError(f"metric.{name}, tried on {len(rows)} rows: {problem}") from error
            for key, value in flat(name, found).items():
                if not isinstance(value, torch.Tensor) or value.ndim:
                    raise ValueError(
                        f"metric.{name} must give 0-d tensors, or a flat dict of them; {key} is "
                        f"{type(value).__name__} {list(getattr(value, 'shape', []))}"
                    )


def _check_sizes(
    cfg: DictConfig, data: TaskData, trainer: pl.Trainer, max_positions: int | None
) -> None:
    """Refuse sizes that do not go together, now that the data are here."""
    examples = chain.from_iterable(data.examples.values())
    longest = max(len(ids) for example in examples for ids in example.input_ids)
    if max_positions is not None and longest > max_positions:
        raise ValueError(
            f"this encoder has {max_positions} positions, and the longest sequence has {longest} "
            f"tokens; set task.max_length={max_positions} or less"
        )
    smallest = {"data.batch_size": cfg.data.batch_size} | {
        f"{split} rows": n for split, n in data.n_rows.items() if n
    }
    for name, n in smallest.items():
        if n < trainer.world_size:
            raise ValueError(
                f"each of {trainer.world_size} processes needs a row, and {name} is {n}; lower "
                "trainer.devices"
            )
    interval, n_batches = cfg.trainer.get("val_check_interval"), len(data.train_dataloader())
    in_an_epoch = "check_val_every_n_epoch" not in cfg.trainer and not any(
        key.startswith(("limit_", "overfit", "fast_dev")) for key in cfg.trainer
    )
    if in_an_epoch and isinstance(interval, int) and interval > n_batches:
        raise ValueError(
            f"trainer.val_check_interval={interval} batches is more than the {n_batches} of an "
            "epoch; use 1.0, or count over epochs with +trainer.check_val_every_n_epoch=null"
        )


def _check_labels(
    metrics: dict[str, RowMetric], objectives: dict[str, Objective], data: TaskData
) -> None:
    """Refuse what compares classes where labels are scores."""
    of_labels = [f"metric={name}" for name, m in metrics.items() if needs(m) == "labels"]
    of_labels += [
        f"objective={name}"
        for name, objective in objectives.items()
        if getattr(objective, "needs", "rows") == "classes"
    ]
    scores = {example.label for example in data.examples["dev"] if example.label % 1}
    if of_labels and scores:
        raise ValueError(
            f"{of_labels[0]} compares classes, and labels of task={data.task.name} are "
            f"scores, such as {min(scores):.3g}; leave it out"
        )


def _strategy(cfg: DictConfig) -> str | Strategy:
    """One process as it comes; several by DDP, with the layers' buffers left to the layers."""
    if n_processes(cfg.trainer) == 1:
        return "auto"
    return DDPStrategy(broadcast_buffers=False, find_unused_parameters=False)
