"""Which parameters decay, and how many train."""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Trainable parameters in two groups: matrices, and vectors (biases, LayerNorm) undecayed.

    The first group takes the optimizer's own weight decay.

    >>> [len(g["params"]) for g in parameter_groups(nn.Linear(2, 3))]
    [1, 1]
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trainable if p.ndim >= 2]},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def count_parameters(module: nn.Module) -> dict[str, int]:
    """How many parameters there are, and how many of them train.

    >>> count_parameters(nn.Linear(2, 3))
    {'total': 9, 'trainable': 9}
    """
    sizes = [(p.numel(), p.requires_grad) for p in module.parameters()]
    return {"total": sum(n for n, _ in sizes), "trainable": sum(n for n, t in sizes if t)}
