"""What a run says of its phases: which parts train in each, and at which rates."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from isotrain.encoders.freezing import Plan, levels
from isotrain.types import Encoder

OUTSIDE = {"model.head.": "head", "model.transforms.": "isotropy layers", "extra.": "objectives"}


def describe(
    plan: Plan, module: nn.Module, encoder: Encoder, optimizer: torch.optim.Optimizer
) -> list[dict[str, Any]]:
    """Each phase: its first step, and its groups with parts, parameters, learning rate and decay.

    The learning rate is the peak of the schedule. `optimizer` holds whatever trains in a phase.
    """
    of_encoder = {id(p): name for name, p in encoder.named_parameters()}  # type: ignore[attr-defined]
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
