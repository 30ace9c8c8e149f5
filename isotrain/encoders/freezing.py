"""Freezing schedules: which encoder parameters train, and from which step. L blocks.

A schedule is a function `(encoder, steps_per_epoch) -> Plan`; if it takes `n_steps`, it also gets
the total number of optimizer steps. Head, isotropy layers and objectives always train. It raises
a ValueError if the encoder lacks the blocks or parameters that it names.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from isotrain.arguments import checked
from isotrain.encoders.base import Encoder

Plan = dict[int, frozenset[str]]
"""Names of the encoder's trained parameters, by the optimizer step from which on they train."""


def freeze_nothing(encoder: Encoder, steps_per_epoch: int) -> Plan:
    """Everything trains."""
    return _from_depth(encoder, 0)


def freeze_embeddings(encoder: Encoder, steps_per_epoch: int) -> Plan:
    """Freeze the embedding layer."""
    return _from_depth(encoder, 1)


@checked
def freeze_first_n(
    encoder: Encoder, steps_per_epoch: int, n_blocks: Annotated[int, Field(ge=0)]
) -> Plan:
    """Freeze the embedding layer and blocks 1 to `n_blocks`.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> plan = freeze_first_n(build_tiny(width=8, n_blocks=3, n_heads=1), 10, n_blocks=2)
    >>> {step: {name.split(".")[3] for name in names} for step, names in plan.items()}
    {0: {'2'}}
    """
    _check_blocks(encoder, n_blocks)
    return _from_depth(encoder, n_blocks + 1)


@checked
def train_last_n(
    encoder: Encoder, steps_per_epoch: int, n_blocks: Annotated[int, Field(ge=1)]
) -> Plan:
    """Only the last `n_blocks` blocks train, and the final norm of encoders that have one."""
    _check_blocks(encoder, n_blocks)
    return _from_depth(encoder, encoder.n_blocks - n_blocks + 1)


def train_only(encoder: Encoder, steps_per_epoch: int, patterns: Sequence[str]) -> Plan:
    """Only parameters whose name matches one of the `patterns` train, such as `*.query.weight`.

    Patterns are shell patterns (`*`, `?`, `[abc]`), case-sensitive, and match the whole name:
    `model.encoder.layer.0.attention.self.query.weight` is the first query in BERT.

    Raises:
        ValueError: no pattern, or one that matches no name; the message has the nearest name.
    """
    if not patterns:
        raise ValueError("freezing.patterns must have at least one pattern; or use head_only")
    names = [name for name, _ in encoder.named_parameters()]
    trained_names: set[str] = set()
    for pattern in patterns:
        matches = {name for name in names if fnmatchcase(name, pattern)}
        if not matches:
            nearest = get_close_matches(pattern, names, n=1, cutoff=0.0)[0]
            raise ValueError(
                f"freezing.patterns: {pattern} matches no parameter of this encoder by its whole "
                f"name; the nearest is {nearest}"
            )
        trained_names |= matches
    return {0: frozenset(trained_names)}


def freeze_encoder(encoder: Encoder, steps_per_epoch: int) -> Plan:
    """Only the head trains."""
    return {0: frozenset()}


def train_layer_norms(encoder: Encoder, steps_per_epoch: int) -> Plan:
    """Only the weights and biases of the encoder's normalisation layers train."""
    norm_ids = {
        id(parameter)
        for module in encoder.modules()
        if "Norm" in type(module).__name__  # LayerNorm, RMSNorm
        for parameter in module.parameters(recurse=False)
    }
    return _some(encoder, lambda name, p: id(p) in norm_ids, "normalisation layers")


def train_biases(encoder: Encoder, steps_per_epoch: int) -> Plan:
    """Only the encoder's biases train, including those of its normalisation layers (BitFit)."""
    return _some(encoder, lambda name, p: name.endswith("bias"), "biases")


@checked
def unfreeze_gradually(
    encoder: Encoder,
    steps_per_epoch: int,
    every: Annotated[int, Field(ge=1)] = 1,
    unit: Literal["epoch", "step"] = "epoch",
) -> Plan:
    """The top block trains from the start; every `every` epochs or steps, one more block joins.

    After L times `every`, the embedding layer joins and all trains. Steps are optimizer steps.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    >>> list(unfreeze_gradually(encoder, steps_per_epoch=10, every=2))
    [0, 20, 40, 60]
    >>> list(unfreeze_gradually(encoder, steps_per_epoch=10, every=2, unit="step"))
    [0, 2, 4, 6]
    """
    interval = every * (steps_per_epoch if unit == "epoch" else 1)
    lowest_depths = range(encoder.n_blocks, -1, -1)
    return {n * interval: _from_depth(encoder, depth)[0] for n, depth in enumerate(lowest_depths)}


@checked
def train_head_first(
    encoder: Encoder,
    steps_per_epoch: int,
    n_steps: float,
    share: Annotated[float, Field(gt=0, lt=1)] = 0.2,
) -> Plan:
    """Only the head trains for the first `share` of all steps, then everything (LP-FT).

    The encoder is unfrozen once the head fits its pre-trained embeddings: a random head would
    distort them. The first stage has round(share·n_steps) steps, at least one and not all. Isotropy
    layers with parameters and objectives train with the head; the LR schedule spans both stages.

    Kumar et al. 2022, section 3.4; there linear probing has separate learning rates and epochs.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> plan = train_head_first(build_tiny(width=8, n_blocks=1, n_heads=1), 10, n_steps=30)
    >>> {step: len(names) for step, names in plan.items()}
    {0: 0, 6: 21}
    """
    n_head_steps = max(0, min(n_steps - 1, max(1, round(share * n_steps))))
    return {0: frozenset()} | {int(n_head_steps): _from_depth(encoder, 0)[0]}


def depths(encoder: Encoder) -> dict[str, int]:
    """The depth of each parameter by name: 0 = embeddings, l = block l, L + 1 = after block L.

    A parameter of several blocks counts to the lowest. One outside the blocks counts as embedding
    (ELECTRA's projection, a table of relative positions), unless it acts after the blocks alone.
    """
    blocks = reversed([*enumerate(encoder.blocks, 1)])
    depth_of = {id(p): k for k, block in blocks for p in block.parameters()}
    depth_of |= {id(p): 0 for p in encoder.embeddings.parameters()}
    after_blocks = encoder.after_blocks
    return {
        name: depth_of.get(id(p), encoder.n_blocks + 1 if name in after_blocks else 0)
        for name, p in encoder.named_parameters()
    }


def set_trainable(encoder: Encoder, names: frozenset[str]) -> None:
    """Make exactly the encoder parameters of these names trainable."""
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name in names)


def ever_trained(plan: Plan) -> frozenset[str]:
    """Parameters that train in any stage."""
    return frozenset().union(*plan.values())


def stage_at(plan: Plan, step: int) -> frozenset[str]:
    """Parameters that train after `step` optimizer steps."""
    return plan[max(start for start in plan if start <= step)]


def within_steps(plan: Plan, n_steps: float) -> Plan:
    """The stages reached within `n_steps`; always that of step 0."""
    return {start: names for start, names in plan.items() if start == 0 or start < n_steps}


def up_to_depth(plan: Plan, encoder: Encoder, depth: int) -> Plan:
    """The plan without parameters above `depth`, which get no gradient."""
    names_above = {name for name, d in depths(encoder).items() if d > depth}
    return {start: names - names_above for start, names in plan.items()}


def rest_frozen_parts(encoder: Encoder) -> None:
    """Put only embeddings and blocks without trainable parameters in evaluation mode."""
    inner_ids = {id(module) for block in encoder.blocks for module in block.modules()}
    stem = [encoder.embeddings] + [
        module  # GPT-2's embedding dropout is not part of its embeddings
        for module in encoder.modules()
        if isinstance(module, nn.Dropout) and id(module) not in inner_ids
    ]
    for part in ([*stem], *([block] for block in encoder.blocks)):
        trains = any(p.requires_grad for module in part for p in module.parameters())
        for module in part:
            module.train(trains)


def frozen_blocks(encoder: Encoder, trained: frozenset[str]) -> int:
    """Number of lowest blocks that are frozen, with everything below them."""
    depth_of = depths(encoder)
    lowest = min((depth_of[name] for name in trained), default=encoder.n_blocks + 1)
    return max(0, min(lowest - 1, encoder.n_blocks))


def _from_depth(encoder: Encoder, lowest: int) -> Plan:
    """Train the parameters of a depth and those above, from the start."""
    return {0: frozenset(name for name, depth in depths(encoder).items() if depth >= lowest)}


def _some(encoder: Encoder, trains: Callable[[str, nn.Parameter], bool], kind: str) -> Plan:
    """Train the selected parameters, at least one, from the start."""
    names = frozenset(n for n, p in encoder.named_parameters() if trains(n, p))
    if not names:
        raise ValueError(
            f"this encoder has no {kind}, and nothing else may train; use another freezing"
        )
    return {0: names}


def _check_blocks(encoder: Encoder, n_blocks: int) -> None:
    if n_blocks > encoder.n_blocks:
        raise ValueError(
            f"freezing.n_blocks must be at most {encoder.n_blocks} for this encoder, got {n_blocks}"
        )
