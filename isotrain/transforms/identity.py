"""No isotropy layer: embeddings pass through unchanged, and are still recorded."""

from torch import Tensor

from isotrain.transforms.base import RowTransform


class Identity(RowTransform):
    """The embeddings `[N, D] -> [N, D]` unchanged, the baseline of every comparison.

    `width` is D, as of every layer; nothing depends on it.

    >>> import torch
    >>> Identity(width=2)(torch.ones(1, 2)).tolist()
    [[1.0, 1.0]]
    """

    changes_rows = False

    def forward(self, x_ND: Tensor) -> Tensor:
        """The same tensor."""
        return x_ND
