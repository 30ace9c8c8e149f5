"""The phases of a training run: what of the encoder trains at which step.

What is in force follows from the step alone, so that a run that goes on from a checkpoint is where
it was.
"""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import nn

from isotrain.encoders.freezing import Plan, levels
from isotrain.types import Encoder


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
    assert isinstance(encoder, nn.Module)
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
