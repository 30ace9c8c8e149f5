"""Options of training against what trains: one that would change nothing is refused. L blocks."""

from __future__ import annotations

from inspect import Parameter, signature

from pytorch_lightning.utilities import rank_zero_warn

from isotrain.encoders.freezing import Plan, levels
from isotrain.heads import CosineHead
from isotrain.training.fine_tuning import FineTuning
from isotrain.training.optim import parameter_groups
from isotrain.training.phases import ever
from isotrain.types import Encoder


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
        for name, parameter in encoder.named_parameters()  # type: ignore[attr-defined]
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
    dropout = getattr(task, "head_dropout", 0.0)
    default = signature(type(task)).parameters.get("head_dropout")
    usual = Parameter.empty if default is None else default.default
    is_asked = usual is not Parameter.empty and dropout not in (0, usual)
    if is_asked and isinstance(module.model.head, CosineHead):
        rank_zero_warn(
            f"task.head_dropout={dropout} changes nothing: it acts in front of a linear head, and "
            f"with {given} a cosine is the score; leave it out"
        )
