"""VICReg: invariance, variance and covariance terms. N pairs, D dimensions."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import mse_loss

from isotrain.arguments import checked
from isotrain.objectives.base import LossOfPairs, check_pairs


def vicreg(
    x_ND: Tensor,
    y_ND: Tensor,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
    covariance_weight: float = 1.0,
    eps: float = 1e-4,
) -> Tensor:
    """25·mean (x − y)² + 25·Σ mean_j max(0, 1 − √(c_jj + eps)) + Σ Σ_{i≠j} c_ij²/D.

    The outer sums are over the two clouds `x` and `y [N, D]`, C their centred covariances
    (divided by N − 1); the factors are the three weights. At least 0. Invariant to one translation
    of both, to one order of pairs or of coordinates, and to exchanging the clouds; not to rotation.

    Σ_{i≠j} c_ij² is high by about Σ_{i≠j} c_ii c_jj/(N − 1) for few pairs, which for N < D is most
    of it.

    Raises:
        ValueError: fewer than two pairs.

    Bardes et al. 2022, in the form of solo-learn.

    >>> x = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> vicreg(x, x).item()  # two covariances of 2: (4 + 4)/2 in each cloud
    8.0
    """
    check_pairs(x_ND, y_ND, min_rows=2)
    spread = x_ND.new_zeros(())
    for z_ND in (x_ND, y_ND):
        centred_ND = z_ND - z_ND.mean(dim=0)
        variance_D = centred_ND.square().sum(dim=0) / (len(z_ND) - 1)
        hinge = torch.relu(1.0 - (variance_D + eps).sqrt()).mean()
        off_diagonal = _off_diagonal(centred_ND, variance_D) / z_ND.shape[1]
        spread = spread + variance_weight * hinge + covariance_weight * off_diagonal
    return invariance_weight * mse_loss(x_ND, y_ND) + spread


def _off_diagonal(centred_ND: Tensor, variance_D: Tensor) -> Tensor:
    """Σ_{i≠j} c_ij², on the smaller side of the cloud."""
    n, d = centred_ND.shape
    gram_SS = centred_ND @ centred_ND.T if n < d else centred_ND.T @ centred_ND
    return (gram_SS / (n - 1)).square().sum() - variance_D.square().sum()


class VICReg(LossOfPairs):
    """`vicreg` of pairs, averaged over the read points; needs two pairs.

    Args: those of `LossOfPairs`, and
        invariance_weight: factor of the mean squared difference of positives.
        variance_weight: factor of the shortfall of standard deviations from 1.
        covariance_weight: factor of squared covariances.
        eps: added to variances before the root.
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        positives: Literal["dropout", "pair"] = "dropout",
        positive_labels: tuple[float, float] | None = None,
        invariance_weight: Annotated[float, Field(ge=0)] = 25.0,
        variance_weight: Annotated[float, Field(ge=0)] = 25.0,
        covariance_weight: Annotated[float, Field(ge=0)] = 1.0,
        eps: Annotated[float, Field(gt=0)] = 1e-4,
    ) -> None:
        loss = partial(
            vicreg,
            invariance_weight=invariance_weight,
            variance_weight=variance_weight,
            covariance_weight=covariance_weight,
            eps=eps,
        )
        super().__init__(weight, reads, positives, positive_labels, loss, min_rows=2)
