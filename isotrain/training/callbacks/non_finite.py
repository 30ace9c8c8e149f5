"""Stop on a non-finite loss, gradient or weight, with a report of its origin."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isotrain.model.distributed import of_all_processes


class NonFiniteError(RuntimeError):
    """A loss, gradient or weight is NaN or infinite; `report` says where and on which examples."""

    def __init__(self, message: str, report: dict[str, Any]) -> None:
        super().__init__(message)
        self.report = report


class MicroBatch(NamedTuple):
    """One micro-batch, for a report; values stay on the device until a report is made."""

    loss: Tensor  # averaged over processes
    parts: dict[str, Tensor]  # of this process's loss, by key
    examples: Tensor  # their indices in this process, on its device


class NonFiniteGuard:
    """Stop before an optimizer step with a NaN or infinite loss or gradient.

    Losses are stored and checked together with the gradient norm, once per step, because reading a
    number synchronises with the device.
    """

    def __init__(self) -> None:
        self.micro_batches: list[MicroBatch] = []  # since the last optimizer step

    def note(self, loss: Tensor, parts: dict[str, Tensor], examples: Tensor) -> None:
        """Store a micro-batch, whose `loss` is the same in every process."""
        self.micro_batches.append(MicroBatch(loss.detach(), parts, examples))

    def check(self, gradient_norm: Tensor | None, step: int, module: nn.Module) -> None:
        """Check the micro-batches of an optimizer step, and clear them.

        Args:
            gradient_norm: 0-d, the same in every process; None if it may be infinite.
            step: optimizer steps completed.
            module: its parameters and gradients are measured in the report.

        Raises:
            NonFiniteError: in every process, with a report of the step, the examples and loss
                parts of the processes whose loss is not finite (of all where each is), and the
                norm of every parameter and gradient.
        """
        micro_batches, self.micro_batches = self.micro_batches, []
        norms = [] if gradient_norm is None else [gradient_norm.detach()]
        if bool(torch.isfinite(torch.stack([*norms, *(m.loss for m in micro_batches)])).all()):
            return
        for micro_batch in micro_batches:
            if not bool(torch.isfinite(micro_batch.loss)):
                raise _error("loss", micro_batch.loss, step, [micro_batch], module)
        raise _error("gradient norm", norms[0], step, micro_batches, module)


def check_weights(module: nn.Module, step: int) -> None:
    """Raise a NonFiniteError if a weight is not finite; called at checkpoints and evaluations.

    Finite gradients can cause this if the learning rate or weight decay is too large.
    """
    weights = dict(module.named_parameters())
    are_finite = torch.stack([torch.isfinite(x).all() for x in weights.values()])
    if bool(are_finite.all()):
        return
    bad = [name for name, good in zip(weights, are_finite.tolist(), strict=True) if not good]
    raise NonFiniteError(
        f"weights must be finite, and after step {step} {len(bad)} of {len(weights)} tensors are "
        f"not ({bad[0]}{', ...' if len(bad) > 1 else ''}); lower optimizer.lr or "
        "optimizer.weight_decay",
        {"what": "weights", "steps_done": step, "parameters": bad},
    )


def _error(
    quantity: str, value: Tensor, step: int, micro_batches: Sequence[MicroBatch], module: nn.Module
) -> NonFiniteError:
    parts = micro_batches[-1].parts
    local_report = {
        "rows": [n for micro_batch in micro_batches for n in micro_batch.examples.tolist()],
        "loss_parts": {name: _plain(part) for name, part in parts.items()},
        "is_finite": all(bool(torch.isfinite(part)) for part in parts.values()),
    }
    reports = of_all_processes(local_report)
    reports = [report for report in reports if not report["is_finite"]] or reports
    indices = [n for report in reports for n in report["rows"]]
    bad = sorted(
        {k for report in reports for k, v in report["loss_parts"].items() if isinstance(v, str)}
    )
    where = f" (in {', '.join(bad)})" if bad else ""
    full_report = {
        "what": quantity,
        "value": _plain(value),
        "steps_done": step,
        "rows": indices,
        "loss_parts": [report["loss_parts"] for report in reports],
        "parameters": {
            name: {
                "weight_norm": _plain(parameter.detach().norm()),
                "gradient_norm": None if parameter.grad is None else _plain(parameter.grad.norm()),
            }
            for name, parameter in module.named_parameters()
        },
    }
    return NonFiniteError(
        f"the {quantity} is {float(value)} at step {step + 1}{where}, on training examples "
        f"{', '.join(map(str, indices[:8]))}{' ...' if len(indices) > 8 else ''}; it changed no "
        "weights. Lower optimizer.lr, look at those examples, or use a wider trainer.precision",
        full_report,
    )


def _plain(value: Tensor) -> float | str:
    """A number; `nan` and `inf` as text, since JSON has no such numbers."""
    number = float(value)
    return number if math.isfinite(number) else str(number)
