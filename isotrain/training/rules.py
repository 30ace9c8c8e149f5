"""Checks across the parts of a run: a violated one would give a wrong number without an error.

Each rule is a generator of errors. `RULES` are those of every run, `OF_OBJECTIVES` those of each
objective. There is no rule for what has no effect, or for what a part, torch or Lightning rejects
itself.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from omegaconf import DictConfig
from torch import nn

from isotrain.encoders.freezing import Plan, depths, ever_trained, freeze_nothing
from isotrain.model.heads import LinearHead, ScaledCosineHead
from isotrain.model.isotropic_model import IsotropicModel, depth_of_site
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task
from isotrain.training.data import TaskData
from isotrain.training.freezing_schedule import highest_depth_read
from isotrain.training.losses import NEEDS
from isotrain.transforms.cluster_pca import ClusterPCA

MIN_ROWS = 4  # of a cluster (isotrain.geometry.cluster_pca)
SHARE = "share_of_task_gradient"


@dataclass(frozen=True)
class Parts:
    """What the rules read: the parts of a run, with its data and freezing schedule."""

    cfg: DictConfig
    model: IsotropicModel
    task: Task
    objectives: Mapping[str, Objective]
    data: TaskData
    plan: Plan  # within the run's steps
    has_adapters: bool
    n_steps: int
    n_processes: int

    @property
    def n_vectors(self) -> int:
        """Vectors of an example that pooling gives."""
        return self.model.pooling.n_vectors(self.task.n_sequences, self.task.n_spans)

    @property
    def depth_read(self) -> int:
        """The highest depth that a loss reads."""
        return highest_depth_read(self.task, self.objectives, self.model.encoder.n_blocks)


def check_parts(parts: Parts) -> None:
    """Raise a ValueError with a line for each violated rule."""
    checks = [rule(parts) for rule in RULES]
    for name, objective in parts.objectives.items():
        checks += [rule(parts, name, objective) for rule in OF_OBJECTIVES]
    if errors := list(chain.from_iterable(checks)):
        raise ValueError("\n".join(errors))


# Evaluation and precision


def whole_evaluations(parts: Parts) -> Iterator[str]:
    """A limited evaluation is a random subset, not Lightning's first batches."""
    for split, key in (("val", "data.n_dev"), ("test", "data.n_test")):
        if limit := parts.cfg.trainer.get(f"limit_{split}_batches"):
            yield (
                f"trainer.limit_{split}_batches={limit} would score the batches that come first; "
                f"use {key}=N, a fixed random subset of N examples, the same in every run"
            )


def full_precision(parts: Parts) -> Iterator[str]:
    """Half-precision weights would round labels, counts and optimizer state."""
    if (name := str(parts.cfg.trainer.get("precision"))) in ("16-true", "bf16-true"):
        yield f"trainer.precision={name} would round labels and counts; use bf16-mixed"


def comparable_gradients(parts: Parts) -> Iterator[str]:
    """Weights as shares of the task's gradient need one, in the range of float32."""
    if parts.cfg.training.objective_weight_as.value != SHARE:
        return
    setting = f"training.objective_weight_as={SHARE}"
    if (name := str(parts.cfg.trainer.get("precision"))) in ("16", "16-mixed"):
        yield (
            f"{setting} measures gradients before they are scaled, and trainer.precision={name} "
            "rounds small ones to 0; use bf16-mixed or 32-true"
        )
    if not parts.task.has_loss:
        yield f"{setting}, and task={parts.task.name} has no loss; use absolute"


def schedule_of_the_run(parts: Parts) -> Iterator[str]:
    """The length and warm-up of a schedule are those of the run."""
    fixes = {
        "num_warmup_steps": "training.warmup_fraction",
        "num_training_steps": "trainer.max_steps",
    }
    for key in fixes.keys() & set(parts.cfg.schedule):
        yield f"schedule.{key} is set by isotrain itself; use {fixes[key]}=..."


def whole_sequences(parts: Parts) -> Iterator[str]:
    """Sequences fit into the encoder, and each process gets an example."""
    data, limit = parts.data, parts.model.encoder.max_positions
    examples = chain.from_iterable(data.examples.values())
    longest = max(len(ids) for example in examples for ids in example.input_ids)
    if limit is not None and longest > limit:
        yield (
            f"this encoder has {limit} positions, and the longest sequence has {longest} tokens; "
            f"set task.max_length={limit} or less"
        )
    sizes = {f"examples of {split}": n for split, n in data.n_rows.items() if n}
    for name, n in ({"data.batch_size": parts.cfg.data.batch_size} | sizes).items():
        if n < parts.n_processes:
            yield (
                f"each of {parts.n_processes} processes needs an example, and {name} is {n}; lower "
                "trainer.devices"
            )


# Isotropy layers


def enough_embeddings(parts: Parts) -> Iterator[str]:
    """Batch statistics at `pooled` need two embeddings, or enough for each cluster."""
    if "pooled" not in parts.model.transforms:
        return
    layer = parts.model.transforms["pooled"]
    if layer.stats != "batch" or not layer.has_statistics:
        return
    size = parts.cfg.data.batch_size
    n_rows, n_min, fix = size * parts.n_vectors, 2.0, ""
    if isinstance(layer, ClusterPCA):  # floor(rho·(n − 1)) directions of a cluster, at least 1
        n_for_direction = 1 / layer.rho + 1 if layer.n_components > 0 else 0
        n_min = layer.n_clusters * max(MIN_ROWS, n_for_direction)
        fix = "isotropy.n_clusters, "
    if n_rows < n_min - 1e-9:
        min_size = math.ceil(math.ceil(n_min - 1e-9) / parts.n_vectors)
        yield (
            f"the isotropy layer gets {n_rows} embeddings a step (data.batch_size={size}), and its "
            f"statistics need {math.ceil(n_min - 1e-9)}: with fewer, clusters fall back to global "
            f"statistics; use data.batch_size={min_size} or more, fewer {fix}or "
            "isotropy.stats=queue"
        )


def sites_that_act(parts: Parts) -> Iterator[str]:
    """There is a site, and a layer at tokens changes the token that pooling reads."""
    if not parts.cfg.site:
        yield "site must name at least one place, got []; for no layer use isotropy=none"
    only_tokens = "tokens" in parts.cfg.site and set(parts.cfg.site) <= {"pooled", "tokens"}
    reads = parts.model.pooling.reads
    if parts.model.rows == "no_special" and only_tokens and reads in ("first", "last"):
        yield (
            "rows=no_special leaves CLS and SEP untouched, so with pooling=cls or last a layer at "
            "tokens would do nothing; use pooling=mean or spans, or rows=all"
        )


def one_vector_per_label(parts: Parts) -> Iterator[str]:
    """A layer that reads labels needs them, and one embedding of each example."""
    if not any(layer.reads_labels for layer in parts.model.transforms.values()):
        return
    if not parts.task.has_labels:
        yield (
            f"isotropy.protect_labels=true reads labels, and those of task={parts.task.name} have "
            "no meaning; use isotropy.protect_labels=false"
        )
    if parts.model.sites != ["pooled"] or parts.n_vectors != 1:
        yield (
            "isotropy.protect_labels=true needs one embedding of each example, and "
            f"site={list(parts.cfg.site)} with {parts.n_vectors} pooled vectors gives several; use "
            "site=[pooled] with task.form=cross and pooling=cls or mean"
        )


def layers_with_gradient(parts: Parts) -> Iterator[str]:
    """A layer that adds to the gradient gets one, and something below it trains."""
    depth_of, n_blocks = depths(parts.model.encoder), parts.model.encoder.n_blocks
    lowest = min((depth_of[name] for name in ever_trained(parts.plan)), default=math.inf)
    for site, layer in parts.model.transforms.items():
        if not layer.changes_gradient:
            continue
        name, depth = type(layer).__name__, depth_of_site(site, n_blocks)
        if parts.depth_read < depth:
            yield (
                f"{name} at {site} adds to the gradient that comes through it, and no loss of "
                f"task={parts.task.name} with these objectives is behind it; read pooled, or move "
                "site"
            )
        if lowest >= depth:
            yield (
                f"{name} at {site} adds to the gradient of the encoder below it, and nothing there "
                "ever trains; use another freezing, a higher site, or isotropy=none"
            )


# Labels and read points


def tokens_with_context(parts: Parts) -> Iterator[str]:
    """Pooling takes a token that has seen its sentence."""
    if parts.model.encoder.is_causal and parts.model.pooling.reads == "first":
        yield (
            "this pooling takes the first token, which has seen nothing of the sentence in a "
            "causal encoder; use pooling=last or pooling=mean"
        )


def labels(parts: Parts) -> Iterator[str]:
    """Whatever reads training labels gets labels of its kind."""
    task, training = parts.task, parts.cfg.training
    if training.select.value == "holdout" and not task.has_labels:
        yield (f"training.select=holdout reads labels, and task={task.name} has none; leave it out")
    has_head = isinstance(parts.model.head, LinearHead | ScaledCosineHead)
    if training.solved_head and not has_head:
        yield (
            "training.solved_head=true solves a linear head or a scaled cosine, and "
            f"task={task.name} form={task.form} has none; use task.form=cross, "
            "task.scaled_cosine=true, or training.solved_head=false"
        )


def read_points(parts: Parts, name: str, objective: Objective) -> Iterator[str]:
    """Read points exist, have seen their sentence, and give what the objective compares."""
    encoder, n_sequences = parts.model.encoder, parts.task.n_sequences
    n_min, n_max, need, fix = NEEDS.get(objective.needs, (0, math.inf, "", ""))
    for text, point in zip(objective.reads, objective.read_points, strict=True):
        n = parts.n_vectors if point.view is None else n_sequences
        if point.name == "before" and "pooled" not in parts.model.transforms:
            yield (
                f"objective.{name}.reads=[before] is the input of the isotropy layer at pooled, "
                f"and site={list(parts.cfg.site)} has none there; add pooled to site, or read "
                "[pooled]"
            )
        try:
            point.depths(encoder.n_blocks)
        except ValueError as error:
            yield f"objective={name}: {error}"
        is_first = point.view == "cls" and encoder.is_causal
        if is_first or (point.name == "layer_0" and point.view in ("cls", "last")):
            yield (
                f"objective={name} reads {text}, a token before it has seen anything of its "
                f"sentence; read {point.name}/{'last' if point.name != 'layer_0' else 'mean'}"
            )
        if objective.needs != "rows" and point.view == "tokens":
            yield (
                f"objective={name} compares examples, and {text} gives it tokens; read pooled, or "
                "a block's /cls, /mean or /last"
            )
        elif getattr(objective, "hard_negative_weight", 0) and n < 3:
            yield (
                f"objective.{name}.hard_negative_weight={objective.hard_negative_weight} weights "
                "hard negatives, and an example has none; use task.hard_negatives=true, or leave "
                "it out"
            )
        elif point.view != "tokens" and not n_min <= n <= n_max:
            source = "task and pooling give" if point.view is None else "task gives"
            yield f"objective={name} needs {need}, and at {text} this {source} {n}; use {fix}"


def start_without_layers(parts: Parts, name: str, objective: Objective) -> Iterator[str]:
    """No isotropy layer lies below a read point that is compared with the frozen start."""
    n_blocks = parts.model.encoder.n_blocks
    points = zip(objective.reads, objective.read_points, strict=True)
    for text, point in points if objective.reads_start else ():
        for site, layer in parts.model.transforms.items():
            is_below = depth_of_site(site, n_blocks) <= max(point.depths(n_blocks))
            if layer.changes_rows and is_below:
                lower_point = "before" if site == "pooled" else f"a point below {site}"
                yield (
                    f"objective={name} compares {text} with the encoder as it starts, without "
                    f"isotropy layers, and the one at site={site} lies below; read {lower_point}"
                )


def two_views(parts: Parts, name: str, objective: Objective) -> Iterator[str]:
    """Two views differ only by dropout: of a dropout module, or by a rate (ModernBERT)."""
    has_dropout = any(
        isinstance(p, float) and p > 0
        for module in parts.model.encoder.modules()
        for key, p in vars(module).items()
        if "dropout" in key or (key == "p" and isinstance(module, nn.Dropout))
    )
    if objective.n_views > 1 and not has_dropout:
        setting = "positives=pair" if objective.positives else "n_views=1"
        yield (
            f"objective={name} compares two views of an example, which only dropout sets apart, "
            f"and this encoder has none; give it some, or use objective.{name}.{setting}"
        )


def labels_of_its_kind(parts: Parts, name: str, objective: Objective) -> Iterator[str]:
    """An objective that reads training labels gets labels of its kind."""
    task, examples = parts.task, parts.data.examples["train"]
    interval = objective.positives and objective.positives.labels
    if interval and not any(interval[0] <= example.label <= interval[1] for example in examples):
        low, high = (f(example.label for example in examples) for f in (min, max))
        yield (
            f"objective.{name}.positive_labels={list(interval)} holds no training label of "
            f"task={task.name}; they lie in [{low:.3g}, {high:.3g}]; choose among those, or leave "
            "it out"
        )
    scores = {example.label for example in parts.data.examples["dev"] if example.label % 1}
    if scores and objective.needs == "classes":
        yield (
            f"objective={name} compares classes, and labels of task={task.name} are scores, such "
            f"as {min(scores):.3g}; leave it out"
        )
    reads_labels = objective.needs in ("classes", "scored_pairs")
    settings = {f"objective={name}": reads_labels, f"objective.{name}.positive_labels": interval}
    for key in (key for key, value in settings.items() if value and not task.has_labels):
        yield f"{key} reads labels, and task={task.name} has none; leave it out"


# What trains


def peft_without_freezing(parts: Parts) -> Iterator[str]:
    """Adapters freeze the encoder themselves."""
    no_freezing = f"{freeze_nothing.__module__}.{freeze_nothing.__name__}"
    if parts.has_adapters and parts.cfg.freezing["_target_"] != no_freezing:
        yield (
            "peft trains its adapters and freezes the rest of the encoder; leave freezing=none, "
            "or use peft=none"
        )


def trains_below(parts: Parts, name: str, objective: Objective) -> Iterator[str]:
    """Something trains at or below what an objective reads."""
    if objective.weight and min(_lowest(parts)) > _depth(parts, objective):
        yield (
            f"objective={name} reads {list(objective.reads)}, and nothing of the encoder at or "
            "below it ever trains; read a higher point, or use another freezing"
        )


def every_stage_trains(parts: Parts) -> Iterator[str]:
    """Where objectives alone train, something below one does in every stage of the freezing."""
    if parts.task.has_loss:
        return
    depth_of = {name: _depth(parts, o) for name, o in parts.objectives.items() if o.weight}
    if max(_lowest(parts)) > max(depth_of.values(), default=-1):
        yield (
            f"task={parts.task.name} has no loss, and in a stage of this freezing nothing trains "
            f"at or below what objective={list(depth_of)} reads; add an objective, read a higher "
            "point, or use another freezing"
        )


def _depth(parts: Parts, objective: Objective) -> int:
    """The highest depth that an objective reads."""
    n_blocks = parts.model.encoder.n_blocks
    return max(max(point.depths(n_blocks)) for point in objective.read_points)


def _lowest(parts: Parts) -> list[float]:
    """The lowest depth that trains, in each stage of the freezing."""
    depth_of, n_blocks = depths(parts.model.encoder), parts.model.encoder.n_blocks
    layer_depths = {
        depth_of_site(site, n_blocks)
        for site, layer in parts.model.transforms.items()
        if any(p.requires_grad for p in layer.parameters())
    }
    stages = [{depth_of[name] for name in names} | layer_depths for names in parts.plan.values()]
    return [min(stage, default=math.inf) for stage in stages]


def trained_new_blocks(parts: Parts) -> Iterator[str]:
    """All matrices of re-initialised blocks train."""
    encoder, n_new = parts.model.encoder, parts.cfg.training.reinit_blocks
    if parts.n_steps == 0 or parts.cfg.trainer.get("fast_dev_run"):  # a smoke test of the code
        return
    depth_of, lowest = depths(encoder), encoder.n_blocks - n_new + 1
    matrices = {name for name, parameter in encoder.named_parameters() if parameter.ndim > 1}
    untrained = {depth_of[name] for name in matrices - ever_trained(parts.plan)}
    if stuck := untrained & set(range(lowest, encoder.n_blocks + 1)):
        cause = "peft" if parts.has_adapters else "freezing"
        if parts.depth_read < encoder.n_blocks:
            cause += f", with objectives that read nothing above layer_{parts.depth_read},"
        yield (
            f"training.reinit_blocks={n_new} gives blocks {lowest} to {encoder.n_blocks} random "
            f"weights, and within {parts.n_steps} optimizer steps {cause} leaves weights of block "
            f"{', '.join(map(str, sorted(stuck)))} untrained; use training.reinit_blocks=0, or let "
            "those blocks train"
        )


RULES: tuple[Callable[[Parts], Iterator[str]], ...] = (
    *(
        whole_evaluations,
        full_precision,
        comparable_gradients,
        schedule_of_the_run,
        whole_sequences,
    ),
    *(enough_embeddings, sites_that_act, one_vector_per_label, layers_with_gradient),
    *(tokens_with_context, labels),
    *(peft_without_freezing, every_stage_trains, trained_new_blocks),
)
OF_OBJECTIVES: tuple[Callable[[Parts, str, Objective], Iterator[str]], ...] = (
    *(read_points, start_without_layers, two_views, labels_of_its_kind),
    trains_below,
)
