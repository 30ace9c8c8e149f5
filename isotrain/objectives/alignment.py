"""Alignment loss: pulls embeddings of a pair together. N pairs, D dimensions."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import mean_distance_power
from isotrain.objectives.base import LossOfPairs, check_pairs


def alignment(x_ND: Tensor, y_ND: Tensor, alpha: float = 2.0) -> Tensor:
    """mean_i ‖u_i − v_i‖^alpha of embeddings and positives `[N, D]`, in [0, 2^alpha]; 0 = equal.

    u_i and v_i are unit vectors; for alpha = 2 it is 2 − 2·cos. Invariant to one rotation of both,
    to lengths, to one order for both and to exchanging them. A pair at distance 0 has gradient 0.
    The metric is `isotrain.metrics.alignment`.

    Wang and Isola 2020.

    >>> import torch
    >>> alignment(torch.eye(2), torch.tensor([[5.0, 0.0], [1.0, 0.0]])).item()
    1.0
    """
    check_pairs(x_ND, y_ND)
    return mean_distance_power(x_ND, y_ND, alpha)


class Alignment(LossOfPairs):
    """`alignment` of pairs, averaged over the read points.

    Args: those of `LossOfPairs`, and
        alpha: power of the distance.

    >>> Alignment(weight=1.0).n_views, Alignment(weight=1.0, positives="pair").n_views
    (2, 1)
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        positives: Literal["dropout", "pair"] = "dropout",
        positive_labels: tuple[float, float] | None = None,
        alpha: Annotated[float, Field(gt=0)] = 2.0,
    ) -> None:
        loss = partial(alignment, alpha=alpha)
        super().__init__(weight, reads, positives, positive_labels, loss, min_rows=1)
