"""Batch normalisation of embeddings, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.transforms.base import TrainStats
from isotrain.transforms.fitted import FittedTransform, Positive, PositiveFloat
from isotrain.transforms.standardize import column_moments


@dataclass(frozen=True)
class BatchNormStats:
    """Moments of each dimension, the variance over N."""

    mean_D: Tensor
    variance_D: Tensor
    scattered: Tensor  # 0-d: false if embeddings pass through unchanged
    counters: dict[str, Tensor]


class BatchNorm(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: `torch.nn.BatchNorm1d`, with frozen evaluation.

    y = w·(x − μ)/√(σ² + ε) + b per dimension, σ² over N; w (initially 1) and b (initially 0) are
    learned. In training mode it equals BatchNorm1d,
    including the gradient through mean and variance. Invariant to shift and scale of a dimension
    (except for ε, which is absolute, as there); it depends on the axes.

    Evaluation differs: BatchNorm1d keeps running means over batches. Here `fit` computes
    statistics over the whole queue, so the variance between batches is included.

    A cloud without scatter (one embedding, where BatchNorm1d raises; equal ones) passes through
    unchanged, without weight and bias, and is counted.

    Args:
        width: D.
        epsilon: ε, added to each variance, in squared units of the embeddings.
        stats: batch, as published; this and the others as in `FittedTransform`.

    Ioffe and Szegedy 2015; statistics of the whole queue at once are ours.

    >>> layer = BatchNorm(width=1)
    >>> layer(torch.tensor([[2.0], [6.0]])).detach().round(decimals=3).tolist()
    [[-1.0], [1.0]]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: PositiveFloat = 1e-5,
        stats: TrainStats = "batch",
        **statistics: Any,
    ) -> None:
        empty = BatchNormStats(torch.zeros(width), torch.zeros(width), torch.tensor(False), {})
        super().__init__(width, empty, stats, **statistics)
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> BatchNormStats:
        """Mean and variance of each dimension, both with a gradient."""
        mean_D, variance_D, scattered, counters = column_moments(x_ND)
        flag = torch.tensor(scattered, device=x_ND.device)
        return BatchNormStats(mean_D, variance_D, flag, counters)

    def transform(self, x_ND: Tensor, stats: BatchNormStats, are_last: bool) -> Tensor:
        """Normalised embeddings."""
        y_ND = (x_ND - stats.mean_D) * (stats.variance_D + self.epsilon).rsqrt()
        return torch.where(stats.scattered.bool(), y_ND * self.weight + self.bias, x_ND)
