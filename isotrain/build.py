"""Build and connect the parts of a run from its configuration."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.utils import instantiate
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import (
    Callback,
    Checkpoint,
    RichProgressBar,
    StochasticWeightAveraging,
    WeightAveraging,
)
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy

from isotrain.config.compose import config_of
from isotrain.config.parts import load, make
from isotrain.config.schema import n_processes, training_steps
from isotrain.console import counted, launcher, process_rank
from isotrain.encoders.base import Encoder
from isotrain.encoders.fast import TAKEN
from isotrain.encoders.freezing import (
    Plan,
    ever_trained,
    set_trainable,
    up_to_depth,
    within_steps,
)
from isotrain.encoders.start import ENCODER, reinit_blocks
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.encoders.trial import check_own
from isotrain.geometry.rng import rng_stream
from isotrain.model.checkpoint import load_weights
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.objectives.base import Objective
from isotrain.runs.files import WEIGHTS_FILE, trained_run
from isotrain.runs.keys import headline_of
from isotrain.tasks.base import Task
from isotrain.tasks.data.perturbations import Changes
from isotrain.training.callbacks.best_checkpoint import Selection
from isotrain.training.callbacks.collapse import CollapseMonitor
from isotrain.training.callbacks.resume import AtomicFiles, Checkpoints
from isotrain.training.data import TaskData
from isotrain.training.freezing_schedule import (
    Freezing,
    freeze_above,
    highest_depth_read,
)
from isotrain.training.loggers.jsonl import EvaluationRecords, Throughput
from isotrain.training.losses import ExtraLosses, ObjectiveWeights
from isotrain.training.module import FineTuning
from isotrain.training.monitor.callback import RunMonitor
from isotrain.training.monitor.measurement import value_names
from isotrain.training.optim import count_parameters
from isotrain.training.revision import source_of, task_of
from isotrain.training.rules import Parts, check_parts
from isotrain.training.speed import Prefix, highest_prefix, take_paths
from isotrain.training.step import Step
from isotrain.transforms.base import RowTransform
from isotrain.types import Pooling, RowMetric

DECIDED = (  # keys of the trainer whose value is derived from the configured one
    *("strategy", "log_every_n_steps", "enable_progress_bar", "enable_model_summary"),
)
# Lightning would mistake the script of a Slurm job for a process of srun. On its SIGUSR1 it would
# stop with a checkpoint that is not ours.
ENVIRONMENTS: Mapping[str, Callable[[], Any]] = {
    "torchrun": TorchElasticEnvironment,
    "srun": partial(SLURMEnvironment, auto_requeue=False),
}
HOLDOUT = 0.1  # default share of training examples held out by `training.select=holdout`


@dataclass(frozen=True)
class Experiment:
    """Everything `run` needs."""

    module: FineTuning
    data: TaskData
    trainer: pl.Trainer
    plan: Plan  # the freezing schedule
    n_parameters: dict[str, int]
    source_id: str  # of the encoder's weights
    loggers: dict[str, Callable[..., Logger]]  # (save_dir, name) -> logger: each opens a run
    headline: list[str]  # metrics that loggers, bar and tables show
    checkpoints: Checkpoints
    selection: Selection
    paths: dict[str, str]  # shortcuts of a step: taken, or why not


def build(
    cfg: DictConfig, folder: Path, start: Path | None, extra: Sequence[Callback] = ()
) -> Experiment:
    """Build the parts of one run; reads data and weights, trains nothing.

    `start` is the checkpoint of `init_from`, resolved by `start_file`; None without one. `extra`
    callbacks come after isotrain's.
    Each component initialises from its own RNG stream, so adding one leaves all other weights and
    dropout masks bit-identical; encoder and head draw from the global one, in this order, and
    reading draws nothing.

    Raises:
        ValueError: parts that cannot be built or are incompatible; the keys to change are named.
    """
    task = task_of(cfg)
    changes = _changes(cfg)
    encoder, adapters = _encoder(cfg, start)
    data = _data(cfg, task, encoder, changes, folder.name)  # the head needs the number of classes
    model = isotropic_model(cfg, task, make(cfg.pooling), encoder)
    objectives: dict[str, Objective] = {}
    sizes: dict[str, Any] = {"width": encoder.width, "n_blocks": encoder.n_blocks}
    for name, node in cfg.objective.items():
        with rng_stream(cfg.seed, f"objective.{name}"):
            objectives[str(name)] = make(node, Objective, **sizes)
    needs = {
        "n_views": max([1, *(objective.n_views for objective in objectives.values())]),
        "reads_start": any(objective.reads_start for objective in objectives.values()),
    }
    step: Step = make(cfg.step, Step, model=model, **needs)

    if launcher() or cfg.trainer.get("num_nodes") not in (None, 1):
        _check_launcher(cfg.trainer)
    world_size = n_processes(cfg.trainer) * int(cfg.trainer.get("num_nodes") or 1)
    steps_per_epoch, n_steps = training_steps(cfg.trainer, data.n_batches(world_size))
    depth = highest_depth_read(task, objectives, encoder.n_blocks)
    if adapters is None:
        lengths: dict[str, Any] = {"steps_per_epoch": steps_per_epoch, "n_steps": n_steps}
        plan: Plan = make(cfg.freezing, encoder=encoder, **lengths)
    else:
        plan = {0: adapters}
    plan = within_steps(up_to_depth(plan, encoder, depth), n_steps)
    set_trainable(encoder, ever_trained(plan))
    freeze_above(model, depth)
    has_adapters = adapters is not None
    check_parts(Parts(cfg, model, task, objectives, data, plan, has_adapters, n_steps, world_size))
    weights = ObjectiveWeights(
        objectives,
        cfg.training.objective_weight_as,
        cfg.training.objective_weight_schedule,
        n_steps,
    )
    module = FineTuning(
        model,
        task,
        step,
        ExtraLosses(objectives, weights),
        optimizer=instantiate(cfg.optimizer),
        schedule=instantiate(cfg.schedule),
        warmup_fraction=cfg.training.warmup_fraction,
        head_lr_factor=cfg.training.head_lr_factor,
        layer_decay=cfg.training.layer_decay,
        prefill_batches=cfg.training.prefill_batches,
        refit_rows=cfg.training.refit_rows,
        output_every_steps=cfg.monitor.every_steps if cfg.metric else 0,
        solved_head=cfg.training.solved_head,
        logs_evaluations=False,
    )

    metrics = {str(name): _metric(node.function) for name, node in cfg.metric.items()}
    names = value_names(metrics, cfg.monitor.max_rows, encoder.width)
    headline = headline_of(names, cfg.monitor.headline)
    selection = Selection(cfg.training.select.value, task.monitor, task.mode, folder)
    intervals = cfg.checkpoint.every_steps, cfg.checkpoint.every_s
    checkpoints = Checkpoints(folder / "resume.ckpt", *intervals, selection)
    paths = take_paths(cfg, model, objectives, plan, data)
    freezing = Freezing(plan, cfg.training.frozen_dropout)
    callbacks: list[Callback] = [Throughput(), checkpoints, freezing]  # in the order of their hooks
    if paths["frozen_prefix"] == TAKEN:
        highest = highest_prefix(cfg, model, objectives)
        callbacks.append(Prefix(plan, highest, Path(cfg.cache_dir) / "prefix"))
    callbacks += [selection, CollapseMonitor(folder)]
    if metrics:
        n, n_map = cfg.monitor.max_rows, cfg.monitor.map_rows
        views = [view.value for view in cfg.monitor.views]
        monitor = RunMonitor(metrics, n, headline, views, n_map, folder)
        callbacks += [monitor, EvaluationRecords(lambda: monitor.newest, headline)]
    else:
        callbacks.append(EvaluationRecords())
    user_callbacks = [_callback(node, selection) for node in cfg.callbacks.values()]
    trainer = _trainer(cfg, folder, [*callbacks, *user_callbacks, *extra], n_steps, world_size)
    return Experiment(
        module,
        data,
        trainer,
        plan,
        count_parameters(module),
        encoder.source_id,
        {str(name): instantiate(node) for name, node in cfg.logger.items()},
        headline,
        checkpoints,
        selection,
        paths,
    )


def trained_parts(folder: Path) -> tuple[IsotropicModel, Task, int]:
    """The trained model of a finished run, its task, and its last step. Reads no examples.

    Raises:
        ValueError: no finished run with weights, or a target that a record may not name.
    """
    record = trained_run(folder)
    cfg = config_of(record)
    if "classes" in cfg.task:  # those of train, if the configuration names none
        cfg.task.classes = record["classes"]
    task = task_of(cfg)
    model = untrained_model(cfg, task)
    load_weights(model, folder / WEIGHTS_FILE, "model.")
    return model, task, record["steps"]


def untrained_model(cfg: DictConfig, task: Task) -> IsotropicModel:
    """The model of a run, with the initial weights of its encoder and adapters."""
    encoder: Encoder = make(cfg.encoder, Encoder)
    make(cfg.peft, encoder=encoder)
    return isotropic_model(cfg, task, make(cfg.pooling), encoder)


def isotropic_model(
    cfg: DictConfig, task: Task, pooling: Pooling, encoder: Encoder
) -> IsotropicModel:
    """The model of a run around its encoder: an isotropy layer at each site, and a new head."""
    n_vectors = pooling.n_vectors(task.n_sequences, task.n_spans)
    if n_vectors == 0:
        raise ValueError(f"pooling=spans: task={task.name} has no target words; use pooling=cls")
    transforms: dict[str, RowTransform] = {
        site: make(cfg.isotropy, RowTransform, width=encoder.width) for site in cfg.site
    }
    head = task.build_head(encoder.width, n_vectors)
    return IsotropicModel(encoder, pooling, head, transforms, cfg.rows.value)


def _encoder(cfg: DictConfig, start: Path | None) -> tuple[Encoder, frozenset[str] | None]:
    """The encoder with its initial weights, and the parameter names of its adapters."""
    encoder: Encoder = make(cfg.encoder, Encoder)
    if not encoder.n_blocks:
        raise ValueError("a table of vectors has no blocks to fine-tune; use isotrain analyze")
    if not isinstance(encoder, TransformerEncoder):
        check_own(encoder)
    if start is not None:
        load_weights(encoder, start, ENCODER)
    if n_new := cfg.training.reinit_blocks:
        with rng_stream(cfg.seed, "reinit_blocks"):
            reinit_blocks(encoder, n_new)
    with rng_stream(cfg.seed, "peft"):
        return encoder, make(cfg.peft, encoder=encoder)


def _changes(cfg: DictConfig) -> Changes:
    """Perturbations of the training set; includes a holdout if model selection needs one."""
    changes = {field.name: cfg.data[field.name] for field in fields(Changes)}
    selects = cfg.training.select.value == "holdout"
    changes["holdout"] = (cfg.data.holdout or HOLDOUT) if selects else 0.0
    return Changes(**changes)


def _data(cfg: DictConfig, task: Task, encoder: Encoder, changes: Changes, name: str) -> TaskData:
    """Read and tokenise the examples of the task; `name` is of the run."""
    data = TaskData(
        task,
        source_of(cfg),
        encoder.tokenizer,
        cfg.data.batch_size,
        cfg.data.eval_batch_size,
        cfg.data.batching.value,
        cfg.seed,
        Path(cfg.cache_dir) if cfg.cache_dir else None,
        changes,
        name,
        {"dev": cfg.data.n_dev, "test": cfg.data.n_test},
    )
    data.setup()
    return data


def _metric(node: DictConfig) -> RowMetric:
    """The function of a metric with its options: Hydra's partial costs a millisecond per call."""
    function = instantiate(node)
    return partial(function.func, *function.args, **function.keywords)


def _callback(node: DictConfig, selection: Selection) -> Callback:
    """A callback of the configuration; `monitor: score` is the score that selects weights."""
    config = OmegaConf.create(OmegaConf.to_container(node))
    assert isinstance(config, DictConfig)
    if config.get("monitor") == "score":
        config.monitor, config.mode = selection.key, selection.mode
    elif config.get("mode") == "auto":
        if not str(config.monitor).endswith("loss"):
            raise ValueError(f"callbacks: monitor={config.monitor} needs mode=min or mode=max")
        config.mode = "min"
    kind = load(str(config.get("_target_")))
    saves = isinstance(kind, type) and issubclass(kind, Checkpoint) and "dirpath" not in config
    arguments = {"dirpath": selection.path.parent / "checkpoints"} if saves else {}
    callback: Callback = make(config, Callback, **arguments)
    if isinstance(callback, WeightAveraging | StochasticWeightAveraging):
        raise ValueError(
            f"callbacks: {type(callback).__name__} would score averaged weights and save others; "
            "leave it out"
        )
    return callback


def _check_launcher(trainer: DictConfig) -> None:
    """Raise a ValueError unless a launcher started the processes that the trainer requests."""
    nodes, each = int(trainer.get("num_nodes") or 1), n_processes(trainer)
    if (name := launcher()) == "torchrun":
        world = int(os.environ["WORLD_SIZE"])
        n_nodes = world // int(os.environ["LOCAL_WORLD_SIZE"])
    elif name == "srun":
        world, n_nodes = (int(os.environ[f"SLURM_STEP_NUM_{unit}"]) for unit in ("TASKS", "NODES"))
    elif nodes > 1:
        raise ValueError(
            f"trainer.num_nodes={nodes} needs torchrun or srun, which start the processes of every "
            f"node: srun -N{nodes} --ntasks-per-node={each} isotrain train ..., or on each node K "
            f"from 0 on: torchrun --nnodes={nodes} --node-rank=K --nproc-per-node={each} "
            "--master-addr=FIRST_NODE --master-port=29500 -m isotrain train ..."
        )
    else:  # by hand, or a rank that Lightning has started
        return
    if (world, n_nodes) != (nodes * each, nodes):
        raise ValueError(
            f"{name} started {counted(world, 'rank')} on {counted(n_nodes, 'node')}, and "
            f"trainer.num_nodes={nodes} trainer.devices={each} are {counted(nodes * each, 'rank')} "
            f"on {counted(nodes, 'node')}; set trainer.num_nodes={n_nodes} "
            f"trainer.devices={world // n_nodes or 1}, or start {each} on each of {nodes}"
        )


def _trainer(
    cfg: DictConfig,
    folder: Path,
    callbacks: Sequence[Callback],
    n_steps: int,
    world_size: int,
) -> pl.Trainer:
    """The trainer and its callbacks; by default a progress bar on a terminal only."""
    node = cfg.trainer
    if (strategy := node.get("strategy", "auto")) not in ("auto", "ddp"):
        raise ValueError(
            f"trainer.strategy must be auto or ddp, got {str(strategy)[:80]}: each process has the "
            "whole model, as layers, objectives and checkpoints need"
        )
    timeout = timedelta(seconds=cfg.rank_timeout_s)  # buffers are left to the layers
    ddp = DDPStrategy(timeout=timeout, broadcast_buffers=False, find_unused_parameters=False)
    shows = node.get("enable_progress_bar")
    is_watched = (sys.stdout.isatty() if shows is None else shows) and process_rank() == 0
    # by default at least 20 records per run, and at least one every 10 steps
    log_every = node.get("log_every_n_steps") or min(10, max(1, n_steps // 20))
    trainer: pl.Trainer = make(
        OmegaConf.create({"trainer": {k: v for k, v in node.items() if k not in DECIDED}}).trainer,
        log_every_n_steps=min(log_every, n_steps) or log_every,  # a short run logs its last step
        plugins=[AtomicFiles(), ENVIRONMENTS.get(launcher(), LightningEnvironment)()],
        default_root_dir=str(folder),
        strategy="auto" if world_size == 1 else ddp,
        logger=False,
        callbacks=[*callbacks, *([RichProgressBar(refresh_rate=4)] if is_watched else [])],
        enable_progress_bar=is_watched,
        enable_model_summary=bool(node.get("enable_model_summary")),
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    if node.get("overfit_batches"):  # which would cut dev to its first batches
        trainer.limit_val_batches = node.get("limit_val_batches", 1.0)
    return trainer
