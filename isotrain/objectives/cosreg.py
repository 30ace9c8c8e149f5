"""Cosine regulariser: pushes the rows of a batch apart. N rows, D dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from isotrain.geometry.cosine import sum_pairwise_cosines
from isotrain.geometry.each_cloud import LossOfClouds


def cosreg(x_ND: Tensor) -> Tensor:
    """Sum of the cosines of all ordered pairs of distinct rows over N²; lower = more spread.

    (‖Σ u_i‖² − Σ ‖u_i‖²)/N², in [−1/N, 1 − 1/N]; 0 for one row. Gao et al. 2019, Eq. 3.

    >>> import torch
    >>> cosreg(torch.tensor([[1.0, 0.0], [2.0, 0.0]])).item()
    0.5
    """
    return sum_pairwise_cosines(x_ND) / len(x_ND) ** 2


class CosReg(LossOfClouds):
    """`cosreg` of what view 0 has at each place, averaged over the places.

    A place with a single row counts as 0, and in the counter `undefined`.

    Args:
        weight: factor of this loss; negative pulls rows together.
        reads: places, such as `pooled` or `all/tokens`.

    >>> CosReg(weight=1.0).n_views
    1
    """

    def __init__(self, weight: float, reads: Sequence[str] = ("pooled",)) -> None:
        super().__init__(weight, reads, cosreg)
