"""Barlow Twins: pulls the cross-correlation of positives to the identity. N pairs, D dimensions."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.objectives.base import LossOfPairs, check_pairs


def barlow(
    x_ND: Tensor,
    y_ND: Tensor,
    off_diagonal_weight: float = 5e-3,
    scale: float = 0.025,
    eps: float = 1e-5,
) -> Tensor:
    """s·[Σ_i (1 − r_ii)² + w·Σ_{i≠j} r_ij²] of embeddings and positives `[N, D]`; at least 0.

    R = X̃ᵀỸ/N is the cross-correlation `[D, D]`, x̃ = (x − mean)/√(variance + `eps`) by
    coordinate, variances divided by N; s = `scale`, w = `off_diagonal_weight`. Invariant to
    translation of either cloud, to a common permutation of pairs or coordinates, to exchanging the
    clouds and, up to `eps`, to the scale of each coordinate; not to rotation.

    Zbontar et al. 2021, with the factor of solo-learn.

    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(barlow(x, x).item(), 6), round(barlow(x, x.flip(1)).item(), 6)
    (0.0, 0.05025)
    """
    check_pairs(x_ND, y_ND, min_rows=2)
    correlation_DD = _z_scores(x_ND, eps).T @ _z_scores(y_ND, eps) / len(x_ND)
    diagonal_D = correlation_DD.diagonal()
    off_diagonal = correlation_DD.square().sum() - diagonal_D.square().sum()
    return scale * ((1.0 - diagonal_D).square().sum() + off_diagonal_weight * off_diagonal)


def _z_scores(x_ND: Tensor, eps: float) -> Tensor:
    centred_ND = x_ND - x_ND.mean(dim=0)
    return centred_ND / (centred_ND.square().mean(dim=0) + eps).sqrt()


class Barlow(LossOfPairs):
    """`barlow` of pairs, averaged over the read points; needs two pairs, and scatter.

    Args: those of `LossOfPairs`, and
        off_diagonal_weight: factor of correlations between different coordinates.
        scale: factor of the whole loss.
        eps: added to variances before the root.
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        positives: Literal["dropout", "pair"] = "dropout",
        positive_labels: tuple[float, float] | None = None,
        off_diagonal_weight: Annotated[float, Field(ge=0)] = 5e-3,
        scale: Annotated[float, Field(gt=0)] = 0.025,
        eps: Annotated[float, Field(gt=0)] = 1e-5,
    ) -> None:
        loss = partial(barlow, off_diagonal_weight=off_diagonal_weight, scale=scale, eps=eps)
        super().__init__(weight, reads, positives, positive_labels, loss, scatter=True)
