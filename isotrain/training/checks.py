"""Checks that need weights (`check_parts`) or data too (`check_experiment`), called by `build`."""

import math
from collections.abc import Mapping
from itertools import chain

from omegaconf import DictConfig
from torch import nn

from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import Plan, ever_trained, levels
from isotrain.model.isotropic_model import IsotropicModel, level_of_site
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task
from isotrain.training.data import TaskData
from isotrain.training.extra_losses import NEEDS
from isotrain.training.freezing_schedule import highest_level_read
from isotrain.training.module import FineTuning
from isotrain.training.solved_head import check_head


def check_parts(
    model: IsotropicModel, task: Task, objectives: Mapping[str, Objective], solved_head: bool
) -> None:
    """Raise a ValueError for incompatible parts, independent of the data."""
    encoder, pooling = model.encoder, model.pooling
    if encoder.is_causal and pooling.reads == "first":
        raise ValueError(
            "this pooling takes the first token, which has seen nothing of the sentence in a "
            "causal encoder; use pooling=last or pooling=mean"
        )
    n_vectors = pooling.n_vectors(task.n_sequences, task.n_spans)
    check_reads(objectives, encoder, n_vectors, task.n_sequences)
    check_starts(objectives, model)
    check_views(objectives, encoder)
    if solved_head:
        check_head(model.head, task)


def check_experiment(
    cfg: DictConfig,
    module: FineTuning,
    data: TaskData,
    plan: Plan,
    trained_by: str,
    n_steps: float,
    n_processes: int,
) -> None:
    """Raise a ValueError for parts incompatible with data or plan.

    `plan` is the freezing schedule up to `n_steps`, set by the key `trained_by` (freezing | peft).
    """
    model, task, objectives = module.model, module.task, module.extra.objectives
    encoder, n_blocks = model.encoder, model.encoder.n_blocks
    level = highest_level_read(task, objectives, n_blocks)
    if n_steps > 0 and not cfg.trainer.get("fast_dev_run"):  # a smoke test of the code
        if level < n_blocks:
            trained_by += f", with objectives that read nothing above layer_{level},"
        within = f"within {n_steps} optimizer steps {trained_by}"
        check_fresh_blocks(plan, encoder, cfg.training.reinit_blocks, within)
    check_gradients(objectives, plan, model, task)
    check_gradient_layers(plan, model, task, level)
    check_sizes(cfg, data, n_processes, encoder.max_positions)
    check_labels(objectives, data)
    check_memories(objectives, data, model.pooling.n_vectors(task.n_sequences, task.n_spans))


def check_reads(
    objectives: Mapping[str, Objective], encoder: Encoder, n_vectors: int, n_sequences: int
) -> None:
    """Check that read points exist and provide what objectives need.

    A block gives one vector per sequence of an example (`n_sequences`), pooling `n_vectors`.
    """
    for name, objective in objectives.items():
        needs = objective.needs
        least, most, what, fix = NEEDS.get(needs, (0, math.inf, "", ""))
        for text, found in zip(objective.reads, objective.read_points, strict=True):
            n = n_vectors if found.view is None else n_sequences
            try:
                found.levels(encoder.n_blocks)
                if found.view != "tokens":
                    objective.check(n)
            except ValueError as error:
                raise ValueError(f"objective={name}: {error}") from error
            if found.view == "cls" and (found.name == "layer_0" or encoder.is_causal):
                raise ValueError(
                    f"objective={name} reads {text}, the first token before it has seen anything "
                    f"of its sentence; read {found.name}/mean"
                )
            if needs != "rows" and found.view == "tokens":
                raise ValueError(
                    f"objective={name} compares examples, and {text} gives it tokens; read "
                    "pooled, or a block's /cls or /mean"
                )
            if found.view != "tokens" and not least <= n <= most:
                by = "task and pooling give" if found.view is None else "task gives"
                raise ValueError(
                    f"objective={name} needs {what}, and at {text} this {by} {n}; use {fix}"
                )


def check_starts(objectives: Mapping[str, Objective], model: IsotropicModel) -> None:
    """Check that no isotropy layer is below a read point compared with the frozen start."""
    n_blocks = model.encoder.n_blocks
    changing = {site: level_of_site(site, n_blocks) for site in model.sites}
    for name, objective in objectives.items():
        points = zip(objective.reads, objective.read_points, strict=True)
        for text, point in points if objective.reads_start else ():
            level = point.level(n_blocks)
            for site, of_layer in changing.items():
                if model.transforms[site].changes_rows and of_layer <= level:
                    raise ValueError(
                        f"objective={name} compares {text} with the encoder as it starts, without "
                        f"isotropy layers, and the one at site={site} lies below; read "
                        + ("before" if site == "pooled" else f"a point below {site}")
                    )


def check_sizes(
    cfg: DictConfig, data: TaskData, world_size: int, max_positions: int | None
) -> None:
    """Check lengths against the encoder, batches and splits against ranks."""
    examples = chain.from_iterable(data.examples.values())
    longest = max(len(ids) for example in examples for ids in example.input_ids)
    if max_positions is not None and longest > max_positions:
        raise ValueError(
            f"this encoder has {max_positions} positions, and the longest sequence has {longest} "
            f"tokens; set task.max_length={max_positions} or less"
        )
    sizes = {f"examples of {split}": n for split, n in data.n_rows.items() if n}
    for name, n in ({"data.batch_size": cfg.data.batch_size} | sizes).items():
        if n < world_size:
            raise ValueError(
                f"each of {world_size} processes needs an example, and {name} is {n}; lower "
                "trainer.devices"
            )


def check_labels(objectives: dict[str, Objective], data: TaskData) -> None:
    """Check that objectives of classes get classes, and label intervals are not empty."""
    trained = [example.label for example in data.examples["train"]]
    scores = {example.label for example in data.examples["dev"] if example.label % 1}
    for name, objective in objectives.items():
        interval = objective.positives and objective.positives.labels
        if interval and not any(interval[0] <= y <= interval[1] for y in trained):
            raise ValueError(
                f"objective.{name}.positive_labels={list(interval)} holds no training label of "
                f"task={data.task.name}; they lie in [{min(trained):.3g}, {max(trained):.3g}]; "
                "choose among those, or leave it out"
            )
        if scores and objective.needs == "classes":
            raise ValueError(
                f"objective={name} compares classes, and labels of task={data.task.name} are "
                f"scores, such as {min(scores):.3g}; leave it out"
            )


def check_memories(objectives: Mapping[str, Objective], data: TaskData, n_vectors: int) -> None:
    """Check that memories are shorter than an epoch."""
    for name, objective in objectives.items():
        if objective.memory is None:
            continue
        view = objective.read_points[0].view
        n_each = n_vectors if view is None else data.task.n_sequences
        labels = objective.positives.labels if objective.positives else None
        low, high = labels or (-math.inf, math.inf)
        n_rows = sum(
            objective.n_remembered(sum(map(len, one.input_ids)) if view == "tokens" else n_each)
            for one in data.examples["train"]
            if low <= one.label <= high
        )
        if (n_held := len(objective.memory.rows_MD)) >= n_rows:
            raise ValueError(
                f"objective.{name}.memory_rows must be below the {n_rows} embeddings that it is "
                f"given in an epoch, got {n_held}: one would be compared with itself"
            )


def check_views(objectives: Mapping[str, Objective], encoder: Encoder) -> None:
    """Check that dropout makes two views differ: a module, or a rate of one (ModernBERT)."""
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
                f"objective={name} compares two views of an example, which only dropout sets apart,"
                f" and this encoder has none; give it some, or use objective.{name}.{other}"
            )


def check_gradients(
    objectives: Mapping[str, Objective], plan: Plan, model: IsotropicModel, task: Task
) -> None:
    """Check that objectives get a gradient: something trains below their read points.

    Isotropy layers count too. A task without a loss needs one in every stage.
    """
    level_of, n_blocks = levels(model.encoder), model.encoder.n_blocks
    of_layers = {
        level_of_site(site, n_blocks)
        for site, layer in model.transforms.items()
        if any(p.requires_grad for p in layer.parameters())
    }
    level_read = {
        name: max(point.level(n_blocks) for point in objective.read_points)
        for name, objective in objectives.items()
        if objective.weight != 0
    }
    stages = [{level_of[name] for name in names} | of_layers for names in plan.values()]
    lowest = [min(stage, default=math.inf) for stage in stages]
    for name, highest in level_read.items():
        if min(lowest) > highest:
            raise ValueError(
                f"objective={name} reads {list(objectives[name].reads)}, and nothing of the "
                "encoder at or below it ever trains; read a higher point, or use another freezing"
            )
    if not task.has_loss and max(lowest) > max(level_read.values(), default=0):
        raise ValueError(
            f"task={task.name} has no loss, and in a stage of this freezing nothing "
            f"trains at or below what objective={list(level_read)} reads; read a higher point, or "
            "use another freezing"
        )


def check_gradient_layers(plan: Plan, model: IsotropicModel, task: Task, level_read: int) -> None:
    """Check that layers that add to the gradient get one, and something below them trains.

    `level_read` is the highest level that a loss depends on.
    """
    level_of, n_blocks = levels(model.encoder), model.encoder.n_blocks
    lowest = min((level_of[name] for name in ever_trained(plan)), default=math.inf)
    for site, layer in model.transforms.items():
        if not layer.changes_gradient:
            continue
        name, level = type(layer).__name__, level_of_site(site, n_blocks)
        if level_read < level:
            raise ValueError(
                f"{name} at {site} adds to the gradient that comes through it, and no loss of "
                f"task={task.name} with these objectives is behind it; read pooled, or move site"
            )
        if lowest >= level:
            raise ValueError(
                f"{name} at {site} adds to the gradient of the encoder below it, and nothing "
                "there ever trains; use another freezing, a higher site, or isotropy=none"
            )


def check_fresh_blocks(plan: Plan, encoder: Encoder, n_blocks: int, within: str) -> None:
    """Check that all matrices of re-initialised blocks train; `within` is for the message."""
    level_of, lowest = levels(encoder), encoder.n_blocks - n_blocks + 1
    matrices = {name for name, parameter in encoder.named_parameters() if parameter.ndim > 1}
    untrained = {level_of[name] for name in matrices - ever_trained(plan)}
    if never := untrained & set(range(lowest, encoder.n_blocks + 1)):
        raise ValueError(
            f"training.reinit_blocks={n_blocks} gives blocks {lowest} to {encoder.n_blocks} random "
            f"weights, and {within} leaves weights of block {', '.join(map(str, sorted(never)))} "
            "untrained; use training.reinit_blocks=0, or let those blocks train"
        )
