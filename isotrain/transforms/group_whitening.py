"""Whitening inside shuffled groups of dimensions, as an isotropy layer. N rows, D width."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.whitening import WhiteningStats, inverse_root, whitening_map, whole_groups
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity
from isotrain.transforms.linear import LinearTransform


def fit_group_whitening(
    x_ND: Tensor,
    order_D: Tensor,
    epsilon: float = 0.1,
    group_size: int | None = 8,
    *,
    keep_scale: bool = True,
) -> WhiteningStats:
    """Mean μ and whitening matrix s·(C + ε·λ̄·1)^−1/2 inside shuffled groups of dimensions.

    Dimensions are put in the order `order_D` (a permutation of 0..D−1), whitened by ZCA inside
    each run of `group_size` of them (None = one group), and put back. C is the covariance of the
    rows inside a group (divisor N − 1), λ̄ = tr C/D over all groups; s = √λ̄ with `keep_scale`,
    else 1. With ε = 0 directions without variance have the factor 0. A cloud without scatter
    (one row, equal rows) is left as it is, and counted.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. The mean carries a gradient, the matrix does
    not. WhitenedCSE 2023; ε relative to λ̄ is ours.

    Raises:
        ValueError: a group size that does not divide the width.

    >>> x = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> stats = fit_group_whitening(x, torch.tensor([1, 0]), 0.0, 1)
    >>> [round(v, 5) for v in stats.matrix_DD.diagonal().tolist()]
    [0.79057, 1.58114]
    """
    size = whole_groups(x_ND.shape[1], group_size)
    found = whitening_map(x_ND[:, order_D], epsilon, keep_scale, inverse_root, size)
    back_D = order_D.argsort()
    return WhiteningStats(
        found.centre_D[back_D], found.matrix_DD[back_D][:, back_D], found.counters
    )


class GroupWhitening(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: ZCA whitening inside shuffled groups of dimensions.

    y = (x − μ)·(C + ε·λ̄·1)^−1/2·s with the covariances between groups left out: correlations
    inside a group go, those between groups stay, and a batch of more than `group_size` rows has
    full rank. The shuffle is drawn once from the seed and kept. It ignores a shift of all rows;
    with `keep_scale` a common factor passes through. The gradient runs through x and μ; the
    matrix is detached. `FittedTransform` says where the statistics come from.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        group_size: dimensions whitened together; None, or D and more = one group.
        keep_scale: multiply by s = √λ̄; else unit variances.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).
        seed: of the shuffle.

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    WhitenedCSE 2023 (groups of 6 of 768, shuffled anew for each of several views).

    >>> layer = GroupWhitening(width=2, epsilon=0.0, group_size=1, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.abs().mul(10).round().tolist()[0]  # √5 each
    [22.0, 22.0]
    """

    order_D: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        epsilon: Annotated[float, Bounds(0)] = 0.1,
        group_size: Annotated[int | None, Bounds(1)] = 8,
        keep_scale: bool = True,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        seed: int = 0,
    ) -> None:
        size = whole_groups(width, group_size)
        super().__init__(width, stats, eval_stats, queue_rows)
        self.epsilon, self.group_size, self.keep_scale = epsilon, size, keep_scale
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("order_D", torch.randperm(width, generator=generator))

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        return fit_group_whitening(
            rows_ND, self.order_D, self.epsilon, self.group_size, keep_scale=self.keep_scale
        )
