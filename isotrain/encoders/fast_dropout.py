"""Dropout at a third of torch's cost on a CPU: masks from 16-bit lanes of 64-bit draws.

torch draws one Bernoulli number per element, in one thread. Here four elements share a 64-bit
draw of the same generator, and one is dropped if its lane is below `round(65536 p)`. So p is
exact to 1/131072, masks differ from torch's, and a resumed run continues the same stream.
"""

from typing import Any

import torch
from torch import Tensor, nn

from isotrain.encoders.base import Encoder

LANES = 1 << 16  # values of a lane


class LaneDropout(nn.Dropout):
    """`nn.Dropout` that draws lanes if its input is on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """The input with elements set to 0 at rate p and the others divided by 1 − p."""
        if not self.training or not input.is_cpu:
            return super().forward(input)
        return lane_dropout(input, self.p)


def without_dropout(encoder: Encoder) -> str:
    """Why fast dropout does not apply; empty if the encoder has dropout."""
    drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in encoder.modules())
    return "" if drops else "the encoder has no dropout"


def draw_lanes(encoder: Encoder) -> None:
    """Switch the dropout modules of an encoder to lane dropout."""
    for module in list(encoder.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout:
                setattr(module, name, LaneDropout(child.p).train(child.training))


def lane_dropout(x: Tensor, p: float) -> Tensor:
    """A tensor of the same shape with elements set to 0 at rate p, the others divided by 1 − p.

    >>> x = lane_dropout(torch.ones(1000), 0.5)
    >>> sorted(set(x.tolist()))
    [0.0, 2.0]
    """
    dropped = round(p * LANES)
    if dropped in (0, LANES):
        return x if dropped == 0 else x * 0
    return _LaneDropout.apply(x, kept(x.shape, dropped), LANES / (LANES - dropped))  # type: ignore[no-any-return, no-untyped-call]


def kept(shape: torch.Size, dropped: int) -> Tensor:
    """A Boolean mask, false where a lane is among the lowest `dropped` of its 65536 values."""
    n = shape.numel()
    lanes = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return lanes.view(torch.int16)[:n].view(shape) >= dropped - LANES // 2


class _LaneDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return torch.where(kept, x, 0.0).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (kept,) = ctx.saved_tensors
        return torch.where(kept, gradients[0], 0.0).mul_(ctx.scale), None, None
