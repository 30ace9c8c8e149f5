"""Global orthogonal regularisation: makes embeddings as orthogonal as random directions.

N embeddings, D dimensions, S the smaller of both.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import mean_pairwise_cosine, unit_rows
from isotrain.geometry.rows import check_shape
from isotrain.objectives.base import LossOfClouds


def gor(x_ND: Tensor, mean_weight: float = 1.0, second_moment_weight: float = 1.0) -> Tensor:
    """m·M₁² + s·max(0, M₂ − 1/D) of `x [N, D]`; 0 = as orthogonal as points uniform on the sphere.

    M₁ and M₂ are the means of cosines and of squared cosines over all ordered pairs of distinct
    embeddings, m = `mean_weight`, s = `second_moment_weight`; for m = s = 1 in [0, 2 − 1/D]. In
    O(N·D·S): Σ cos² is ‖UᵀU‖²_F = ‖UUᵀ‖²_F less the pairs of an embedding with itself. Invariant to
    rotation, lengths and order. A zero vector has cosine 0.

    Zhang et al. 2017, in the form of sentence-transformers.

    >>> gor(torch.tensor([[1.0, 0.0], [0.0, 3.0]])).item(), gor(torch.ones(2, 4)).item()
    (0.0, 1.75)
    """
    check_shape(x_ND)
    n, d = x_ND.shape
    unit_ND = unit_rows(x_ND)
    gram_SS = unit_ND @ unit_ND.T if n < d else unit_ND.T @ unit_ND
    diagonal = unit_ND.square().sum(dim=1).square().sum()
    second_moment = (gram_SS.square().sum() - diagonal) / (n * (n - 1))
    return mean_weight * mean_pairwise_cosine(x_ND).square() + second_moment_weight * torch.relu(
        second_moment - 1.0 / d
    )


class GOR(LossOfClouds):
    """`gor` of each of the P vectors `[B, P, D]` of view 0, or of tokens `[N, D]`, averaged.

    Vectors of the same example are not compared with each other.

    Args: those of `Objective`, and
        mean_weight: factor of the squared mean cosine.
        second_moment_weight: factor of the excess of squared cosines.
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        mean_weight: Annotated[float, Field(ge=0)] = 1.0,
        second_moment_weight: Annotated[float, Field(ge=0)] = 1.0,
    ) -> None:
        loss = partial(gor, mean_weight=mean_weight, second_moment_weight=second_moment_weight)
        super().__init__(weight, reads, loss)

    def clouds_of(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> Sequence[Sequence[Tensor]]:
        """One cloud per vector index, over examples; tokens are one cloud."""
        columns_of_reads = (read.unbind(1) if read.ndim == 3 else [read] for read in views[0])
        return [[x_ND] for columns in columns_of_reads for x_ND in columns]
