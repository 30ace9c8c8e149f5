"""Cosine regulariser: pushes the embeddings of a batch apart. N embeddings, D dimensions."""

from collections.abc import Sequence

from torch import Tensor

from isotrain.geometry.cosine import sum_pairwise_cosines
from isotrain.geometry.rows import check_shape
from isotrain.objectives.base import LossOfClouds


def cosreg(x_ND: Tensor) -> Tensor:
    """Σ_{i≠j} cos(x_i, x_j)/N² of the embeddings `x [N, D]`, in [−1/N, 1 − 1/N]; low = spread out.

    (‖Σ u_i‖² − Σ ‖u_i‖²)/N² with u_i = x_i/‖x_i‖, in O(N·D); 0 for one embedding. Invariant to
    rotation, lengths and order. A zero vector has cosine 0 with all.

    Gao et al. 2019, Eq. 3.

    >>> import torch
    >>> cosreg(torch.tensor([[1.0, 0.0], [2.0, 0.0]])).item()
    0.5
    """
    check_shape(x_ND, min_rows=1)
    return sum_pairwise_cosines(x_ND) / len(x_ND) ** 2


class CosReg(LossOfClouds):
    """`cosreg` of the embeddings of view 0, averaged over the read points."""

    def __init__(self, weight: float, reads: Sequence[str] = ("pooled",)) -> None:
        super().__init__(weight, reads, cosreg)
