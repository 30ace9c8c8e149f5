"""Alignment as a loss: rows that belong together shall be close. N pairs, D dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.cosine import mean_distance_power
from isotrain.geometry.positives import LossOfPairs, Positives
from isotrain.objectives.pairs import check_pairs


def alignment(x_ND: Tensor, y_ND: Tensor, alpha: float = 2.0) -> Tensor:
    """mean_i ‖u_i − v_i‖^alpha of rows and positives `[N, D]`, in [0, 2^alpha]; 0 = equal.

    u_i and v_i are unit rows; for alpha = 2 it is 2 − 2·cos. Unchanged by one rotation of both,
    by the length of rows, by one order for both and by exchanging them. A pair at distance 0 has
    gradient 0. Keeps the dtype. `isotrain.metrics.alignment` measures the same.

    Raises:
        ValueError: not `[N, D]`, no pair, or two shapes.

    Wang and Isola 2020.

    >>> import torch
    >>> alignment(torch.eye(2), torch.tensor([[5.0, 0.0], [1.0, 0.0]])).item()
    1.0
    """
    check_pairs(x_ND, y_ND)
    return mean_distance_power(x_ND, y_ND, alpha)


class Alignment(LossOfPairs):
    """`alignment` of the positives `[N, D]` at each place, averaged over the places.

    A place without a pair counts as 0, and in the counter `undefined`.

    Args:
        weight: factor of this loss; negative drives positives apart.
        reads: places, such as `pooled` or `layer_3/mean`.
        positives: dropout (each row in two passes) | pair (the two vectors of an example).
        positive_labels: of `pair`, the interval [low, high] of the labels that make a pair one
            (labels are class numbers, or scores scaled to [0, 1]); None = every pair.
        alpha: power of the distance.

    Raises:
        ValueError: an illegal number or name; `positive_labels` without pairs, or that are no
            interval; with `pair`, examples of other than two vectors.

    Wang and Isola 2020.

    >>> Alignment(weight=1.0).n_views, Alignment(weight=1.0, positives="pair").n_views
    (2, 1)
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        positives: Literal["dropout", "pair"] = "dropout",
        positive_labels: Sequence[float] | None = None,
        alpha: Annotated[float, Bounds(above=0)] = 2.0,
    ) -> None:
        loss = partial(alignment, alpha=alpha)
        super().__init__(weight, reads, Positives(positives, positive_labels), loss, min_rows=1)
