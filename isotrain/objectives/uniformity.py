"""Uniformity loss: spreads directions over the sphere. N embeddings, D dimensions."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import log_mean_potential, unit_rows
from isotrain.geometry.rows import check_shape
from isotrain.objectives.base import LossOfClouds


def uniformity(x_ND: Tensor, t: float = 2.0) -> Tensor:
    """ln mean_{i<j} exp(−t‖u_i − u_j‖²) of `x [N, D]`, in [−2tN/(N − 1), 0]; low = uniform.

    u_i = x_i/‖x_i‖; over all pairs, O(N²·D), both passes in blocks. Invariant to rotation, lengths
    and order. A zero vector stays at the origin. See `isotrain.metrics.uniformity`.

    Wang and Isola 2020.

    >>> import torch
    >>> round(uniformity(torch.tensor([[2.0, 0.0], [-3.0, 0.0]])).item(), 6)
    -8.0
    """
    check_shape(x_ND)
    return log_mean_potential(unit_rows(x_ND), t)


class Uniformity(LossOfClouds):
    """`uniformity` of the embeddings of view 0, averaged over the read points.

    Args: those of `Objective`, and
        t: decay rate of a pair's potential with its squared distance.
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        t: Annotated[float, Field(gt=0)] = 2.0,
    ) -> None:
        super().__init__(weight, reads, partial(uniformity, t=t))
