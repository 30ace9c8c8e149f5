"""Training that has left the numbers: stopped at once, with what is needed to look into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class NonFiniteError(RuntimeError):
    """A loss or gradient is NaN or infinite; `report` says where and on which examples."""

    def __init__(self, message: str, report: dict[str, Any]) -> None:
        super().__init__(message)
        self.report = report


def refuse_non_finite(
    what: str,
    value: Tensor,
    step: int,
    parts: dict[str, Tensor],
    index: Sequence[int],
    module: nn.Module,
) -> None:
    """Stop when `value`, the loss or the gradient norm, is not finite.

    Args:
        what: its name.
        value: 0-d.
        step: optimizer steps done before.
        parts: of the loss, by key.
        index: data set rows of the batch in this process.
        module: whose parameters and gradients the report measures.

    Raises:
        NonFiniteError: with a report of the step, rows, loss parts, and the norm of every
            parameter and gradient.
    """
    value = value.detach()
    if bool(torch.isfinite(value)):
        return
    norms = {}
    for name, parameter in module.named_parameters():
        gradient = parameter.grad
        norms[name] = {
            "weight_norm": float(parameter.detach().norm()),
            "gradient_norm": None if gradient is None else float(gradient.norm()),
        }
    report = {
        "what": what,
        "value": float(value),
        "step": step,
        "rows": list(index),
        "loss_parts": {name: float(part) for name, part in parts.items()},
        "parameters": norms,
    }
    bad = [name for name, part in parts.items() if not bool(torch.isfinite(part))]
    where = f" (in {', '.join(bad)})" if bad else ""
    raise NonFiniteError(
        f"the {what} is {float(value)} at step {step + 1}{where}, on training rows "
        f"{', '.join(map(str, index[:8]))}{' ...' if len(index) > 8 else ''}; the weights were not "
        "changed by it. Lower optimizer.lr, look at those rows, or use trainer.precision=32-true",
        report,
    )
