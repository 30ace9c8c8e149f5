"""Checks that need the data or the weights; `build` calls them before training starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from inspect import Parameter, signature
from itertools import chain

import torch
from omegaconf import DictConfig
from pytorch_lightning.utilities import rank_zero_warn
from torch import nn

from isotrain.config.read_points import read_point
from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import Plan, levels
from isotrain.geometry.cloud import shared
from isotrain.metrics.suite import flat, needs
from isotrain.model.heads import CosineHead
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task
from isotrain.training.data import TaskData
from isotrain.training.freezing import ever, height_of_read_point, height_of_site
from isotrain.training.module import FineTuning
from isotrain.training.optim import parameter_groups
from isotrain.types import RowMetric


def try_optimizer(module: FineTuning) -> None:
    """Bad values of the optimizer and the schedule, told before training begins."""
    name = "optimizer"
    try:
        trial = module.optimizer([torch.nn.Parameter(torch.zeros(1))])
        name = "schedule.name"
        module.schedule(optimizer=trial, num_warmup_steps=0, num_training_steps=1)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def try_metrics(metrics: dict[str, RowMetric], max_rows: int, width: int) -> dict[str, list[str]]:
    """Names of the values of each metric; one that could measure no cloud of the run is refused."""
    names: dict[str, list[str]] = {}
    rows = torch.randn(min(max_rows, 4096), width, generator=torch.Generator().manual_seed(0))
    number = torch.arange(len(rows))
    given = {"labels": number % 2, "groups": number % 2, "reference": rows.flip(1)}
    with shared(rows):
        for name, metric in metrics.items():
            try:
                need = needs(metric)
                found = metric(rows) if need == "rows" else metric(rows, **{need: given[need]})
            except Exception as error:  # of a metric of the user's own, whatever it is
                problem = str(error) if isinstance(error, ValueError) else repr(error)
                raise ValueError(f"metric.{name}, tried on {len(rows)} rows: {problem}") from error
            for key, value in flat(name, found).items():
                if not isinstance(value, torch.Tensor) or value.ndim:
                    raise ValueError(
                        f"metric.{name} must give 0-d tensors, or a flat dict of them; {key} is "
                        f"{type(value).__name__} {list(getattr(value, 'shape', []))}"
                    )
            names[name] = list(flat(name, found))
    return names


def check_sizes(
    cfg: DictConfig, data: TaskData, world_size: int, max_positions: int | None
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
        if n < world_size:
            raise ValueError(
                f"each of {world_size} processes needs a row, and {name} is {n}; lower "
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


def check_labels(objectives: dict[str, Objective], data: TaskData) -> None:
    """Refuse what compares classes where labels are scores, and intervals without a label."""
    trained = [example.label for example in data.examples["train"]]
    for name, objective in objectives.items():
        interval = _interval(objective)
        if interval is not None and not any(interval[0] <= y <= interval[1] for y in trained):
            raise ValueError(
                f"objective.{name}.positive_labels={list(interval)} holds no training label of "
                f"task={data.task.name}; they lie in [{min(trained):.3g}, {max(trained):.3g}]; "
                "choose among those, or leave it out"
            )
    of_labels = [
        f"objective={name}"
        for name, objective in objectives.items()
        if objective.needs == "classes"
    ]
    scores = {example.label for example in data.examples["dev"] if example.label % 1}
    if of_labels and scores:
        raise ValueError(
            f"{of_labels[0]} compares classes, and labels of task={data.task.name} are "
            f"scores, such as {min(scores):.3g}; leave it out"
        )


def check_memories(objectives: Mapping[str, Objective], data: TaskData, n_vectors: int) -> None:
    """Refuse memories that still hold a row of an example when it comes back an epoch later."""
    for name, objective in objectives.items():
        if objective.memory is None:
            continue
        (read,) = objective.reads
        n_each = n_vectors if read_point(read).view is None else data.task.n_sequences
        low, high = _interval(objective) or (-math.inf, math.inf)
        n_rows = sum(
            objective.n_remembered(
                sum(map(len, example.input_ids)) if read_point(read).view == "tokens" else n_each
            )
            for example in data.examples["train"]
            if low <= example.label <= high
        )
        if (n_held := len(objective.memory.rows_MD)) >= n_rows:
            raise ValueError(
                f"objective.{name}.memory_rows must be below the {n_rows} rows that it is given in "
                f"an epoch, got {n_held}: a row would be compared with itself"
            )


def _interval(objective: Objective) -> Sequence[float] | None:
    """The labels that make a pair one, where the objective chooses by them."""
    return objective.positives.labels if objective.positives else None


def check_views(objectives: Mapping[str, Objective], encoder: Encoder) -> None:
    """Refuse second views of a batch where no dropout makes them differ from the first.

    Dropout is a module, or a number of a module (ModernBERT's attention).
    """
    drops = any(
        isinstance(p, float) and p > 0
        for module in encoder.modules()
        for key, p in vars(module).items()
        if "dropout" in key or (key == "p" and isinstance(module, nn.Dropout))
    )
    for name, objective in objectives.items():
        if objective.n_views > 1 and not drops:
            other = "positives=pair" if objective.positives else "n_views=1"
            raise ValueError(
                f"objective={name} compares two views of a row, which only dropout sets apart, and "
                f"this encoder has none; give it some, or use objective.{name}.{other}"
            )


def trained_heights(plan: Plan, encoder: Encoder, transforms: nn.ModuleDict) -> list[set[int]]:
    """How high what trains stands, phase by phase: 0 = embeddings, k = block k of L.

    Of isotropy layers those that learn; heights are those of `isotrain.training.freezing`.
    """
    level_of, n_blocks = levels(encoder), encoder.n_blocks
    of_layers = {
        height_of_site(site, n_blocks)
        for site, layer in transforms.items()
        if any(p.requires_grad for p in layer.parameters())
    }
    return [{level_of[name] for name in names} | of_layers for _, names in sorted(plan.items())]


def check_gradients(
    objectives: Mapping[str, Objective], phases: Sequence[Set[int]], n_blocks: int, task: Task
) -> None:
    """Refuse objectives whose read points have no gradient: nothing at or below them ever trains.

    `phases` are the `trained_heights`. A task without a loss needs a gradient in each of them.
    """
    height = {
        name: max(height_of_read_point(text, n_blocks) for text in objective.reads)
        for name, objective in objectives.items()
        if objective.weight != 0
    }
    lowest = [min(phase, default=math.inf) for phase in phases]
    for name, highest in height.items():
        if min(lowest) > highest:
            raise ValueError(
                f"objective={name} reads {list(objectives[name].reads)}, and nothing of the "
                "encoder at or below it ever trains; read a higher point, or use another freezing"
            )
    if not task.has_loss and max(lowest) > max(height.values(), default=0):
        raise ValueError(
            f"task={task.name} has no loss of its own, and in a phase of this freezing nothing "
            f"trains at or below what objective={list(height)} reads; read a higher point, or use "
            "another freezing"
        )


def check_fresh_blocks(plan: Plan, encoder: Encoder, n_blocks: int, key: str) -> None:
    """Refuse random blocks that stay random.

    Args:
        plan: what trains.
        encoder: of L blocks.
        n_blocks: of them, counted from the top, have fresh weights.
        key: what the plan follows from, for the message.

    Raises:
        ValueError: a matrix of such a block trains in no phase.
    """
    trained, level_of = ever(plan), levels(encoder)
    lowest = encoder.n_blocks - n_blocks + 1
    never = {
        level_of[name]
        for name, parameter in encoder.named_parameters()
        if lowest <= level_of[name] <= encoder.n_blocks
        and parameter.ndim > 1
        and name not in trained
    }
    if never:
        raise ValueError(
            f"training.reinit_blocks={n_blocks} gives blocks {lowest} to {encoder.n_blocks} random "
            f"weights, and {key} leaves weights of block {', '.join(map(str, sorted(never)))} "
            "untrained; use training.reinit_blocks=0, or let those blocks train"
        )


def check_effects(
    plan: Plan, encoder: Encoder, height: int, layer_decay: float, frozen_dropout: bool
) -> None:
    """Refuse options that would change nothing where this plan is followed.

    Args:
        plan: what trains, all of it within reach of the losses.
        encoder: of L blocks.
        height: the highest part that a loss depends on.
        layer_decay: 1 = equal rates.
        frozen_dropout: False rests embeddings and blocks that do not train.

    Raises:
        ValueError: a decay with nothing below block L that trains, or dropout to be rested where
            embeddings and every block train something in all phases.
    """
    level_of = levels(encoder)
    trained = {level_of[name] for name in ever(plan)}
    if layer_decay != 1 and min(trained, default=encoder.n_blocks) >= encoder.n_blocks:
        raise ValueError(
            f"training.layer_decay={layer_decay} lowers rates below block {encoder.n_blocks}, and "
            "nothing trains there; use training.layer_decay=1, or another freezing"
        )
    parts = set(range(min(height, encoder.n_blocks) + 1))
    at_rest = [parts - {level_of[name] for name in names} for names in plan.values()]
    if not frozen_dropout and not any(at_rest):
        raise ValueError(
            "training.frozen_dropout=false acts in embeddings and blocks of which nothing trains, "
            "and here something trains in each; use training.frozen_dropout=true, or another "
            "freezing"
        )


def warn_of_head(module: FineTuning) -> None:
    """Warn of options of a head that has nothing for them to act on, as a cosine.

    A learning rate for what trains beside the encoder, and nothing does (a layer or an objective
    may have parameters, too), or dropout in front of a cosine. No error: studies and sweeps give
    one command to several tasks and arms.
    """
    task, factor = module.task, module.head_lr_factor
    given = f"task={task.name} form={task.form}"
    groups = parameter_groups(module, module.model.encoder)
    if factor != 1 and not any(group["is_head"] for group in groups):
        rank_zero_warn(
            f"training.head_lr_factor={factor} changes nothing: it sets the rate of what trains "
            f"beside the encoder, and with {given} nothing does; leave it out"
        )
    dropout = task.head_dropout
    default = signature(type(task)).parameters.get("head_dropout")
    usual = Parameter.empty if default is None else default.default
    is_asked = usual is not Parameter.empty and dropout not in (0, usual)
    if is_asked and isinstance(module.model.head, CosineHead):
        rank_zero_warn(
            f"task.head_dropout={dropout} changes nothing: it acts in front of a linear head, and "
            f"with {given} a cosine is the score; leave it out"
        )
