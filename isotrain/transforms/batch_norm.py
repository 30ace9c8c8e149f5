"""Batch normalisation of rows, as an isotropy layer. N rows, D width."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from isotrain.arguments import Bounds, checked
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity, FittedTransform
from isotrain.transforms.standardize import column_moments


class BatchNormStats(NamedTuple):
    """Moments `[D]` that `fit_batch_norm` estimates and `apply_batch_norm` uses."""

    mean_D: Tensor
    variance_D: Tensor  # over N
    scattered: Tensor  # 0-d: false where rows are to pass through
    counters: dict[str, Tensor]


def fit_batch_norm(x_ND: Tensor) -> BatchNormStats:
    """Mean `[D]` and variance `[D]` (over N) of each dimension; both carry a gradient.

    The variance is in squared units of the rows. The rows of a cloud without scatter are counted.
    `x [N, D]`: finite float32 or float64 rows, N ≥ 1, which is not checked.

    Ioffe and Szegedy 2015; what is done without scatter is ours.

    >>> fit_batch_norm(torch.tensor([[1.0], [3.0]])).variance_D.tolist()
    [1.0]
    """
    mean_D, variance_D, scattered = column_moments(x_ND)
    passed = torch.tensor(0.0 if scattered else float(len(x_ND)))
    flag = torch.tensor(scattered, device=x_ND.device)
    return BatchNormStats(mean_D, variance_D, flag, {"rows_passed_through": passed})


def apply_batch_norm(
    x_ND: Tensor,
    stats: BatchNormStats,
    weight_D: Tensor | None = None,
    bias_D: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
) -> Tensor:
    """Rows (x − μ)/√(σ² + ε), times the weight, plus the bias, `[N, D]`; unitless.

    Weight and bias `[D]` count where both are given; ε is in squared units of the rows. Rows come
    back as they are where the statistics are of a cloud without scatter. `x [N, D]`: finite
    rows, which is not checked.

    Ioffe and Szegedy 2015.

    >>> stats = BatchNormStats(torch.tensor([1.0]), torch.tensor([4.0]), torch.tensor(True), {})
    >>> apply_batch_norm(torch.tensor([[5.0]]), stats, epsilon=0.0).tolist()
    [[2.0]]
    """
    y_ND = (x_ND - stats.mean_D) * (stats.variance_D + epsilon).rsqrt()
    if weight_D is not None and bias_D is not None:
        y_ND = y_ND * weight_D + bias_D
    return torch.where(stats.scattered.bool(), y_ND, x_ND)


class BatchNorm(FittedTransform[BatchNormStats]):
    """Isotropy layer `[N, D] -> [N, D]`: `torch.nn.BatchNorm1d` on rows, with frozen evaluation.

    y = w·(x − μ)/√(σ² + ε) + b by dimension, σ² over N. In training mode it equals BatchNorm1d,
    gradient through mean and variance included. Shift and scale of a dimension change nothing
    (but for ε, which is absolute, as there); a rotation changes everything.

    Evaluation differs. BatchNorm1d keeps running means, averages over the statistics of past
    batches that each forward moves. Here `fit` takes the statistics over all rows of the queue at
    once: the variance between batches counts, it is over N, and `forward` changes no state.

    A cloud without scatter (one row, where BatchNorm1d raises; equal rows) passes through
    unchanged, without weight and bias, and is counted.

    Args:
        width: D.
        epsilon: ε, added to each variance, in squared units of the rows.
        affine: whether weight w (from 1) and bias b (from 0) are learned.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Ioffe and Szegedy 2015; statistics of all rows of the queue at once are ours.

    >>> layer = BatchNorm(width=1)
    >>> layer(torch.tensor([[2.0], [6.0]])).detach().round(decimals=3).tolist()
    [[-1.0], [1.0]]
    """

    mean_D: Tensor
    variance_D: Tensor
    scattered: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        epsilon: Annotated[float, Bounds(above=0)] = 1e-5,
        affine: bool = True,
        stats: TrainStats = "batch",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        empty = BatchNormStats(torch.zeros(width), torch.zeros(width), torch.tensor(False), {})
        super().__init__(width, empty, stats, eval_stats, queue_rows)
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width)) if affine else None
        self.bias = nn.Parameter(torch.zeros(width)) if affine else None

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> BatchNormStats:
        """Mean and variance of each dimension."""
        return fit_batch_norm(rows_ND)

    def transform(self, rows_ND: Tensor, stats: BatchNormStats, are_last: bool) -> Tensor:
        """Normalised rows."""
        return apply_batch_norm(rows_ND, stats, self.weight, self.bias, epsilon=self.epsilon)
