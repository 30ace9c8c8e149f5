"""The freezing schedule: what trains at which step, and the highest layer that any loss reads.

The schedule depends on the step alone, so a resumed run continues where it stopped. L blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import nn

from isotrain.config.read_points import read_point
from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import Plan, levels
from isotrain.model.isotropic_model import IsotropicModel, block_of
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task


def check_plan(plan: Plan, encoder: Encoder) -> None:
    """Refuse a plan that a freezing must not give.

    Raises:
        ValueError: nothing said of step 0, a step before it, or a name that the encoder lacks.
    """
    unknown = ever(plan) - levels(encoder).keys()
    if 0 not in plan or min(plan) < 0 or unknown:
        raise ValueError(
            "a freezing gives steps from 0 on, 0 among them, each with names of the encoder's "
            f"parameters; got steps {sorted(plan)[:5]}"
            + (f" and {sorted(unknown)[:3]}, which it does not have" if unknown else "")
        )


def ever(plan: Plan) -> frozenset[str]:
    """What trains in any phase.

    >>> sorted(ever({0: frozenset("b"), 5: frozenset("ab")}))
    ['a', 'b']
    """
    return frozenset().union(*plan.values())


def in_force(plan: Plan, step: int) -> frozenset[str]:
    """What trains in the step that comes after `step` optimizer steps.

    >>> plan = {0: frozenset("b"), 5: frozenset("ab")}
    >>> sorted(in_force(plan, 4)), sorted(in_force(plan, 5))
    (['b'], ['a', 'b'])
    """
    return plan[max(first for first in plan if first <= step)]


def reached(plan: Plan, n_steps: float) -> Plan:
    """The phases that a training of `n_steps` comes to; step 0 is always one.

    >>> sorted(reached({0: frozenset("b"), 5: frozenset("ab")}, n_steps=5))
    [0]
    """
    return {first: names for first, names in plan.items() if first == 0 or first < n_steps}


def rest_frozen_parts(encoder: Encoder) -> None:
    """Embeddings and blocks without a trainable parameter in evaluation mode, the others not."""
    inside = {id(module) for block in encoder.blocks for module in block.modules()}
    stem = [encoder.embeddings] + [
        module  # the dropout of GPT-2's embeddings is no part of them
        for module in encoder.modules()
        if isinstance(module, nn.Dropout) and id(module) not in inside
    ]
    for part in ([*stem], *([block] for block in encoder.blocks)):
        trains = any(p.requires_grad for module in part for p in module.parameters())
        for module in part:
            module.train(trains)


def wrap_anew(strategy: Strategy, module: pl.LightningModule) -> None:
    """With several processes: DDP over what trains now, which is what it waits for gradients of."""
    if isinstance(strategy, DDPStrategy):
        strategy.model = module
        strategy.configure_ddp()


OUTSIDE = {"model.head.": "head", "model.transforms.": "isotropy layers", "extra.": "objectives"}


def describe(
    plan: Plan, module: nn.Module, encoder: Encoder, optimizer: torch.optim.Optimizer
) -> list[dict[str, Any]]:
    """Each phase: its first step, and its groups with parts, parameters, learning rate and decay.

    The learning rate is the peak of the schedule. `optimizer` holds whatever trains in a phase.
    """
    of_encoder = {id(p): name for name, p in encoder.named_parameters()}
    level_of = levels(encoder)
    part_of = {}
    for name, parameter in module.named_parameters():
        level = level_of.get(of_encoder.get(id(parameter), ""))
        part_of[id(parameter)] = (
            next((part for start, part in OUTSIDE.items() if name.startswith(start)), "others")
            if level is None
            else _part(level, encoder.n_blocks)
        )
    phases = []
    for first, names in sorted(plan.items()):
        groups = []
        for group in optimizer.param_groups:
            trained = [p for p in group["params"] if of_encoder.get(id(p)) in names | {None}]
            if trained:
                groups.append(
                    {
                        "parts": list(dict.fromkeys(part_of[id(p)] for p in trained)),
                        "n_parameters": sum(p.numel() for p in trained),
                        "lr": group["lr"],
                        "weight_decay": group.get("weight_decay", 0.0),
                    }
                )
        n_parameters = sum(group["n_parameters"] for group in groups)
        phases.append({"from_step": first, "n_parameters": n_parameters, "groups": groups})
    return phases


def _part(level: int, n_blocks: int) -> str:
    return "embeddings" if level == 0 else f"block {level}" if level <= n_blocks else "final norm"


def height_of_read_point(text: str, n_blocks: int) -> int:
    """The height of a read point; of `all/…`, that of the last block.

    >>> [height_of_read_point(t, 6) for t in ("layer_2/cls", "all/tokens", "before", "pooled")]
    [2, 6, 7, 8]
    """
    outside = {"before": n_blocks + 1, "pooled": n_blocks + 2}
    found = read_point(text)
    return outside.get(found.name) or max(found.blocks(n_blocks))


def height_of_site(site: str, n_blocks: int) -> int:
    """The height of an isotropy layer.

    >>> [height_of_site(site, 6) for site in ("layer_2", "tokens", "pooled")]
    [3, 7, 8]
    """
    return (block_of(site, n_blocks) or n_blocks) + 1 + (site == "pooled")


def highest_read(task: Task, objectives: Mapping[str, Objective], n_blocks: int) -> int:
    """The height of the highest part that a loss depends on.

    The loss of a task reaches the head; without one, the objectives reach the highest read point
    of any of them of a weight other than 0; −1 = nothing.
    """
    if task.has_loss:
        return n_blocks + 3
    weighted = [objective for objective in objectives.values() if objective.weight != 0]
    reads = [text for objective in weighted for text in objective.reads]
    return max((height_of_read_point(text, n_blocks) for text in reads), default=-1)


def within_reach(plan: Plan, encoder: Encoder, height: int) -> Plan:
    """The plan without what stands above `height`, which no process may wait for."""
    level_of = levels(encoder)
    return {
        first: frozenset(name for name in names if level_of[name] <= height)
        for first, names in plan.items()
    }


def freeze_above(model: IsotropicModel, height: int) -> None:
    """Let no isotropy layer train that stands above `height`, nor a head."""
    n_blocks = model.encoder.n_blocks
    for site, layer in model.transforms.items():
        if height_of_site(site, n_blocks) > height:
            layer.requires_grad_(False)
    if height < n_blocks + 3:
        model.head.requires_grad_(False)
