"""Layers that only shift: for the studies where_isotropy_pays_bias and where_isotropy_pays_cone."""

import torch
from torch import Tensor, nn

from isotrain.transforms.base import RowTransform


class TrainedBias(RowTransform):
    """y = x + b: what `mean` subtracts, but learned.

    b starts at 0 and is trained at `training.head_lr_factor` times the rate. After a mean pooling
    it is a second bias of the encoder's last LayerNorm.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """x + b, in the type of x."""
        return x + self.bias.to(x.dtype)


class AddedCone(RowTransform):
    """y = x + c with a fixed c of length `norm`, in a direction drawn once: a cone, added.

    Around the origin, embeddings of mean square length r² get the mean cosine norm² / (norm² + r²).
    """

    def __init__(self, width: int, norm: float) -> None:
        super().__init__(width)
        direction = torch.randn(width, generator=torch.Generator().manual_seed(0))
        self.register_buffer("shift", norm * direction / direction.norm())

    def forward(self, x: Tensor) -> Tensor:
        """x + c, in the type of x."""
        return x + self.shift.to(x.dtype)
