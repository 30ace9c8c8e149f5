"""Which parameters decay, and how many train."""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(module: nn.Module, head: nn.Module | None = None) -> list[dict[str, Any]]:
    """Trainable parameters in groups: matrices, and vectors (biases, LayerNorm) undecayed.

    Those of `head`, a part of `module`, come in groups of their own, marked `is_head`. A group
    of matrices takes the optimizer's own weight decay.

    >>> groups = parameter_groups(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))
    >>> [(len(g["params"]), g["is_head"]) for g in groups]
    [(2, False), (2, False)]
    """
    of_head = {id(p) for p in head.parameters()} if head is not None else set()
    groups: list[dict[str, Any]] = []
    for is_head in (False, True):
        own = [p for p in module.parameters() if p.requires_grad and (id(p) in of_head) == is_head]
        groups.append({"params": [p for p in own if p.ndim >= 2], "is_head": is_head})
        vectors = [p for p in own if p.ndim < 2]
        groups.append({"params": vectors, "is_head": is_head, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def count_parameters(module: nn.Module) -> dict[str, int]:
    """How many parameters there are, and how many of them train.

    >>> count_parameters(nn.Linear(2, 3))
    {'total': 9, 'trainable': 9}
    """
    sizes = [(p.numel(), p.requires_grad) for p in module.parameters()]
    return {"total": sum(n for n, _ in sizes), "trainable": sum(n for n, t in sizes if t)}
