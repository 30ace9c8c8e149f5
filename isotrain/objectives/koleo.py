"""KoLeo: pushes embeddings away from their nearest neighbour. N embeddings, D dimensions."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.neighbours import nearest_neighbours
from isotrain.geometry.rows import check_shape
from isotrain.objectives.base import LossOfClouds


def koleo(x_ND: Tensor, eps: float = 1e-8) -> Tensor:
    """−mean_i ln(min_{j≠i} ‖u_i − u_j‖ + eps) of unit vectors u of `x [N, D]`; low = spread out.

    In [−ln(2 + eps), −ln eps], natural logarithm. Neighbours are found exactly and held fixed in
    the gradient, which is exact if they are unique. Equal embeddings are at distance 0 and get no
    gradient from each other: collapsed embeddings stay collapsed. Invariant to rotation, lengths
    and order.

    Sablayrolles et al. 2018, with one `eps`, inside the logarithm.

    >>> import torch
    >>> round(koleo(torch.tensor([[2.0, 0.0], [-1.0, 0.0]])).item(), 6)
    -0.693147
    """
    check_shape(x_ND)
    unit_ND = unit_rows(x_ND)
    nearest_N = nearest_neighbours(unit_ND, 1).index_QK[:, 0]
    distance_N = (unit_ND - unit_ND[nearest_N]).norm(dim=1)
    mean_log: Tensor = (distance_N + eps).log().mean()
    return -mean_log


class KoLeo(LossOfClouds):
    """`koleo` of the embeddings of view 0, averaged over the read points.

    Args: those of `Objective`, and
        eps: added to distances, so that the logarithm is defined for equal embeddings.
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        eps: Annotated[float, Field(gt=0)] = 1e-8,
    ) -> None:
        super().__init__(weight, reads, partial(koleo, eps=eps))
