"""Spectral penalty: discourages few directions from holding most of the variance.

N embeddings, D dimensions, R directions.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.rows import check_shape
from isotrain.geometry.spectra import leading_directions
from isotrain.objectives.base import LossOfClouds


def spectral(x_ND: Tensor, n_components: int = 1) -> Tensor:
    """Share of the variance of `x [N, D]` in its R leading directions, in [R/D, 1]; low = even.

    tr(VᵀCV)/tr C, C the centred covariance and V its R = `n_components` leading directions, which
    are held fixed: that is the exact gradient of the R largest eigenvalues wherever λ_R > λ_{R+1},
    and a finite one where they are equal. One exact eigenproblem of the smaller side of x, without
    a backward pass through it. High for few embeddings: at least R/(N − 1). Invariant to rotation,
    translation, uniform scale and order.

    Raises:
        ValueError: fewer than R + 2 embeddings or R + 1 dimensions, where the share is 1 for any
            embeddings.

    Ours.

    >>> import torch
    >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(spectral(x).item(), 6)
    0.9
    """
    check_shape(x_ND, min_rows=n_components + 2)
    check_below(n_components, x_ND.shape[1])
    centred_ND = x_ND - x_ND.mean(dim=0)
    top_DR = leading_directions(centred_ND.detach(), n_components)
    return (centred_ND @ top_DR).square().sum() / centred_ND.square().sum()


def check_below(n_components: int, width: int) -> None:
    """Raise a ValueError unless R < D."""
    if n_components >= width:
        raise ValueError(
            f"n_components must be below the width, got {n_components} of {width}; "
            "all directions hold all variance"
        )


class Spectral(LossOfClouds):
    """`spectral` of the embeddings of view 0, averaged over the read points.

    It needs `n_components` + 2 embeddings, and scatter. A negative weight concentrates variance.

    Args: those of `Objective`, and
        n_components: leading directions R, below D.
    """

    @checked
    def __init__(
        self,
        weight: float,
        width: int,
        reads: Sequence[str] = ("pooled",),
        n_components: Annotated[int, Field(ge=1)] = 1,
    ) -> None:
        check_below(n_components, width)
        loss = partial(spectral, n_components=n_components)
        super().__init__(weight, reads, loss, min_rows=n_components + 2, scatter=True)
