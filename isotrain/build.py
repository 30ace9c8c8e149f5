"""The composition root: a configuration becomes the parts of a run. Only here, `instantiate`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy

from isotrain.arguments import check_kind
from isotrain.config.compose import content_hash
from isotrain.config.processes import n_processes
from isotrain.config.rules import spans_mistake
from isotrain.config.steps import LIMITS, training_steps
from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import Plan, set_trainable
from isotrain.encoders.reinit import reinit_blocks
from isotrain.encoders.start import load_start
from isotrain.geometry.rng import own_draws
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.objectives.base import Objective
from isotrain.runs.keys import headline_of
from isotrain.tasks.base import Task
from isotrain.tasks.data.perturbations import Changes, check_changes
from isotrain.training.callbacks.best_checkpoint import Selection
from isotrain.training.callbacks.predictions import KeptPredictions, Variety
from isotrain.training.callbacks.progress_bar import Progress
from isotrain.training.callbacks.resume import AtomicFiles, Checkpoints
from isotrain.training.callbacks.same_config import SameConfig, process_rank
from isotrain.training.checks import (
    check_effects,
    check_fresh_blocks,
    check_gradients,
    check_labels,
    check_memories,
    check_sizes,
    check_views,
    trained_heights,
    try_metrics,
    try_optimizer,
    warn_of_head,
)
from isotrain.training.data import TaskData
from isotrain.training.extra_losses import ExtraLosses, check_reads
from isotrain.training.freezing import (
    check_plan,
    ever,
    freeze_above,
    highest_read,
    reached,
    within_reach,
)
from isotrain.training.module import FineTuning
from isotrain.training.monitor.callback import IsotropyMonitor
from isotrain.training.optim import count_parameters
from isotrain.transforms.base import RowTransform
from isotrain.types import Pooling, RowMetric, Source

CONTRACTS: dict[str, type] = {
    "task": Task,
    "encoder": Encoder,
    "isotropy": RowTransform,
    "objective": Objective,
}


@dataclass(frozen=True)
class Experiment:
    """Everything `run` needs."""

    module: FineTuning
    data: TaskData
    trainer: pl.Trainer
    n_parameters: dict[str, int]
    source_id: str  # of the encoder's weights
    loggers: dict[str, Callable[..., Logger]]  # (save_dir, name) -> logger: each opens a run
    headline: list[str]  # metrics that loggers, bar and tables show
    checkpoints: Checkpoints
    selection: Selection


def data_revision(cfg: DictConfig) -> str:
    """What the source holds of the task's data sets now; reads no row."""
    task: Task = made(cfg.task)
    source: Source = made(cfg.source)
    return "; ".join(dict.fromkeys(map(source.revision_of, task.data_sets)))


def isotropic_model(
    cfg: DictConfig, task: Task, pooling: Pooling, encoder: Encoder
) -> IsotropicModel:
    """The model of a run around its encoder: a layer of its own at each site, and a fresh head."""
    transforms: dict[str, RowTransform] = {
        site: made(cfg.isotropy, width=encoder.width) for site in cfg.site
    }
    n_vectors = pooling.n_vectors(task.n_sequences, task.n_spans)
    head = task.build_head(encoder.width, n_vectors)
    return IsotropicModel(encoder, pooling, head, transforms, cfg.rows.value, cfg.sync)


def build(cfg: DictConfig, folder: Path, start: Path | None) -> Experiment:
    """The parts of one run, wired; reads data and weights, trains nothing.

    `start` is the checkpoint that `init_from` names, as `start_file` found it; None without one.

    Raises:
        ValueError: parts that do not fit together; the keys to change are named.
    """
    # Task and pooling first: whether they fit is known before any weights are loaded.
    task: Task = made(cfg.task)
    pooling: Pooling = made(cfg.pooling)
    if mistake := spans_mistake(pooling.reads, task.n_spans, task.name):
        raise ValueError(mistake)
    changes = _changes(cfg, task)
    encoder = _encoder(cfg, pooling, start)
    n_vectors = pooling.n_vectors(task.n_sequences, task.n_spans)
    model = isotropic_model(cfg, task, pooling, encoder)
    # Draws of their own: with any of these parts, the others and the first dropout are as without.
    objectives: dict[str, Objective] = {}
    for name, node in cfg.objective.items():
        with own_draws(cfg.seed, f"objective.{name}"):
            objectives[name] = _objective(node, encoder)
    check_reads(objectives, encoder, n_vectors, task.n_sequences, model.sites)
    with own_draws(cfg.seed, "reinit_blocks"):
        reinit_blocks(encoder, cfg.training.reinit_blocks)
    with own_draws(cfg.seed, "peft"):
        adapters: frozenset[str] | None = made(cfg.peft, encoder=encoder)
    check_views(objectives, encoder)
    height = highest_read(task, objectives, encoder.n_blocks)
    set_trainable(encoder, frozenset())
    freeze_above(model, height)
    plan_of = partial(_plan, cfg, encoder, adapters, height)
    plan = plan_of(steps_per_epoch=1)  # true steps come with the data
    if not (all(plan.values()) or count_parameters(model)["trainable"]):
        raise ValueError(
            f"nothing would train: the head of task={task.name} form={task.form} has no "
            "parameters and freezing leaves none of the encoder's that a loss depends on; use "
            "another freezing, or objectives that read a higher block"
        )
    options, of_plan = cfg.training, "freezing" if adapters is None else "peft"
    if height < encoder.n_blocks:
        of_plan += f", with objectives that read nothing above layer_{height},"
    check_fresh_blocks(plan, encoder, options.reinit_blocks, of_plan)
    check_effects(plan, encoder, height, options.layer_decay, options.frozen_dropout)
    module = FineTuning(
        model,
        task,
        ExtraLosses(objectives),
        optimizer=instantiate(cfg.optimizer),
        schedule=instantiate(cfg.schedule),
        warmup_fraction=options.warmup_fraction,
        head_lr_factor=options.head_lr_factor,
        layer_decay=options.layer_decay,
        frozen_dropout=options.frozen_dropout,
        prefill_batches=options.prefill_batches,
        refit_rows=options.refit_rows,
    )
    warn_of_head(module)
    data = TaskData(
        task,
        made(cfg.source),
        encoder.tokenizer,
        cfg.data.batch_size,
        cfg.data.eval_batch_size,
        cfg.data.batching.value,
        cfg.seed,
        Path(cfg.cache_dir) if cfg.cache_dir else None,
        changes,
    )
    metrics = {str(name): _metric(node.function) for name, node in cfg.metric.items()}
    names = try_metrics(metrics, cfg.monitor.max_rows, encoder.width)
    headline = headline_of(names, cfg.monitor.headline)
    selection = Selection(options.select.value, task.monitor, task.mode, options.patience, folder)
    checkpoints = Checkpoints(folder / "resume.ckpt", cfg.checkpoint.every_steps, selection)
    monitor = [_monitor(cfg, folder, metrics, headline)] if metrics else []
    kept = KeptPredictions(folder)
    trainer = _trainer(cfg, folder, [checkpoints, selection, Variety(), kept, *monitor])
    try_optimizer(module)
    data.setup()  # last: it fills the token cache
    check_sizes(cfg, data, trainer.world_size, encoder.max_positions)
    check_labels(objectives, data)
    check_memories(objectives, data, n_vectors)
    limits = {key: getattr(trainer, key) for key in LIMITS}
    steps_per_epoch, n_steps = training_steps(limits, data.n_batches(trainer.world_size))
    if 0 < n_steps < trainer.log_every_n_steps:  # type: ignore[attr-defined]
        trainer.log_every_n_steps = int(n_steps)  # type: ignore[attr-defined]
    module.plan = reached(plan_of(steps_per_epoch=steps_per_epoch), n_steps)
    if n_steps > 0 and not cfg.trainer.get("fast_dev_run"):  # which only tries the code
        within = f"freezing, within {n_steps} optimizer steps,"
        check_fresh_blocks(module.plan, encoder, options.reinit_blocks, within)
    phases = trained_heights(module.plan, encoder, model.transforms)
    check_gradients(objectives, phases, encoder.n_blocks, task)
    set_trainable(encoder, ever(module.plan))
    return Experiment(
        module,
        data,
        trainer,
        count_parameters(module),
        encoder.source_id,
        {str(name): instantiate(node) for name, node in cfg.logger.items()},
        headline,
        checkpoints,
        selection,
    )


def _changes(cfg: DictConfig, task: Task) -> Changes:
    """What is changed about the rows; rows are held out only for a selection that asks for it."""
    changes = Changes(**{f.name: cfg.data[f.name] for f in fields(Changes)})
    if cfg.training.select.value != "holdout":
        changes = replace(changes, holdout=0.0)
    check_changes(changes, task)
    return changes


def _encoder(cfg: DictConfig, pooling: Pooling, start: Path | None) -> Encoder:
    """The encoder with the weights that the run starts from, of the kind that the pooling reads."""
    encoder: Encoder = made(cfg.encoder)
    if not encoder.n_blocks:
        raise ValueError("a table of vectors has no blocks to fine-tune; use isotrain analyze")
    if start is not None:
        load_start(encoder, start)
    if encoder.is_causal and pooling.reads == "first":
        raise ValueError(
            "this pooling takes the first token, and in a causal encoder that has seen nothing of "
            "the sentence; use pooling=last or pooling=mean"
        )
    return encoder


def _plan(
    cfg: DictConfig,
    encoder: Encoder,
    adapters: frozenset[str] | None,
    height: int,
    steps_per_epoch: int,
) -> Plan:
    """What trains at which step: adapters, or what freezing leaves; at or below `height`."""
    plan: Plan = (
        made(cfg.freezing, encoder=encoder, steps_per_epoch=steps_per_epoch)
        if adapters is None
        else {0: adapters}
    )
    check_plan(plan, encoder)
    return within_reach(plan, encoder, height)


def _trainer(cfg: DictConfig, folder: Path, parts: Sequence[Callback]) -> pl.Trainer:
    """The trainer and its callbacks; a progress bar where somebody watches."""
    callbacks = [SameConfig(content_hash(cfg)), *parts]
    # the layers' buffers are left to the layers
    of_several = DDPStrategy(broadcast_buffers=False, find_unused_parameters=False)
    watched = sys.stdout.isatty() and process_rank() == 0
    if watched:
        callbacks.append(Progress(refresh_rate=1))
    trainer: pl.Trainer = made(
        cfg.trainer,
        plugins=[AtomicFiles()],
        default_root_dir=str(folder),
        strategy="auto" if n_processes(cfg.trainer) == 1 else of_several,
        logger=False,
        callbacks=callbacks,
        enable_progress_bar=watched,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    return trainer


def _metric(node: DictConfig) -> RowMetric:
    """The function of a metric with its options: Hydra's partial takes a millisecond a call."""
    made = instantiate(node)
    return partial(made.func, *made.args, **made.keywords)


def _monitor(
    cfg: DictConfig, folder: Path, metrics: dict[str, RowMetric], headline: list[str]
) -> IsotropyMonitor:
    options = cfg.monitor
    return IsotropyMonitor(
        metrics,
        options.max_rows,
        headline,
        [view.value for view in options.views],
        options.every_steps,
        options.map_rows,
        folder,
    )


def made(node: DictConfig, **arguments: Any) -> Any:
    """The part of a node, made outside of Hydra; a ValueError names a node with wrong keys."""
    path, target = node._get_full_key(""), node["_target_"]
    make = instantiate(node, _partial_=True, _convert_="all")
    try:
        part = make(**arguments)
    except TypeError as error:
        raise ValueError(
            f"{path} cannot be made: {error}; give the keys that {target} takes"
        ) from error
    check_kind(path, part, CONTRACTS.get(path.partition(".")[0], object))
    return part


def _objective(node: DictConfig, encoder: Encoder) -> Objective:
    """An objective, told the width and the number of blocks where it takes them."""
    takes = inspect.signature(get_object(node["_target_"])).parameters
    known = {"width": encoder.width, "n_blocks": encoder.n_blocks}
    return made(node, **{name: known[name] for name in known if name in takes})  # type: ignore[no-any-return]
