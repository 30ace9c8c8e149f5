"""Training that has left the numbers: stopped at once, with what is needed to look into it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from isotrain.model.distributed import n_processes


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
    index: Sequence[Tensor],
    module: nn.Module,
) -> None:
    """Stop when `value`, the loss or the gradient norm, is not finite.

    Args:
        what: its name.
        value: 0-d, the same in every process.
        step: optimizer steps done before.
        parts: of this process's loss, by key.
        index: data set rows of this process that the value comes from, batch by batch; read only
            when there is something to report, as reading waits for the device.
        module: whose parameters and gradients the report measures.

    Raises:
        NonFiniteError: in every process, with a report of the step, the rows and loss parts of the
            processes whose loss is not finite (of all where each is), and the norm of every
            parameter and gradient.
    """
    value = value.detach()
    if bool(torch.isfinite(value)):
        return
    own = {
        "rows": [row for numbers in index for row in numbers.tolist()],
        "loss_parts": {name: _plain(part) for name, part in parts.items()},
        "is_finite": all(bool(torch.isfinite(part)) for part in parts.values()),
    }
    found = _of_all_processes(own)
    found = [one for one in found if not one["is_finite"]] or found
    rows = [row for one in found for row in one["rows"]]
    bad = sorted({k for one in found for k, v in one["loss_parts"].items() if isinstance(v, str)})
    where = f" (in {', '.join(bad)})" if bad else ""
    report = {
        "what": what,
        "value": _plain(value),
        "steps_done": step,
        "rows": rows,
        "loss_parts": [one["loss_parts"] for one in found],
        "parameters": {
            name: {
                "weight_norm": _plain(parameter.detach().norm()),
                "gradient_norm": None if parameter.grad is None else _plain(parameter.grad.norm()),
            }
            for name, parameter in module.named_parameters()
        },
    }
    raise NonFiniteError(
        f"the {what} is {float(value)} at step {step + 1}{where}, on training rows "
        f"{', '.join(map(str, rows[:8]))}{' ...' if len(rows) > 8 else ''}; the weights were not "
        "changed by it. Lower optimizer.lr, look at those rows, or use a wider trainer.precision",
        report,
    )


def _plain(value: Tensor) -> float | str:
    """A number; `nan` and `inf` by name, which JSON has no numbers for."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _of_all_processes(own: dict[str, Any]) -> list[dict[str, Any]]:
    if n_processes() == 1:
        return [own]
    found: list[Any] = [None] * n_processes()
    distributed.all_gather_object(found, own)
    return found
