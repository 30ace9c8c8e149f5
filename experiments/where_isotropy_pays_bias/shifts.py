"""A trained bias after the pooling."""

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
