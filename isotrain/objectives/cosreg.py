"""Cosine regulariser: pushes the pooled vectors of a batch apart. N rows, D dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from isotrain.geometry.cosine import sum_pairwise_cosines
from isotrain.geometry.rows import wide
from isotrain.types import ModelOutput


def cosreg(x_ND: Tensor) -> Tensor:
    """Sum of the cosines of all ordered pairs of distinct rows over N²; lower = more spread.

    (‖Σ u_i‖² − Σ ‖u_i‖²)/N², in [−1/N, 1 − 1/N]; 0 for one row. Gao et al. 2019, Eq. 3.

    >>> import torch
    >>> cosreg(torch.tensor([[1.0, 0.0], [2.0, 0.0]])).item()
    0.5
    """
    return sum_pairwise_cosines(x_ND) / len(x_ND) ** 2


class CosReg:
    """`cosreg` of the pooled vectors of view 0, as an objective with a weight.

    >>> CosReg(weight=1.0).n_views
    1
    """

    n_views = 1

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, views: Sequence[ModelOutput], labels: Tensor) -> Tensor:
        """The unweighted loss, in float32 or wider."""
        pooled_BPD = views[0].pooled
        return cosreg(wide(pooled_BPD).flatten(0, 1))
