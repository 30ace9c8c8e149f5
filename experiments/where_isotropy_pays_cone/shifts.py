"""A fixed shift after the pooling."""

import torch
from torch import Tensor

from isotrain.transforms.base import RowTransform


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
