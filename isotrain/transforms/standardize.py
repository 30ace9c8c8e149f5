"""Each dimension to mean 0 and standard deviation 1, as an isotropy layer. N rows, D width."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.rows import has_scatter
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity, FittedTransform


class StandardizeStats(NamedTuple):
    """What `fit_standardize` estimates and `apply_standardize` uses."""

    mean_D: Tensor
    factor_D: Tensor  # what centred coordinates are multiplied by
    counters: dict[str, Tensor]


def column_moments(x_ND: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Mean and variance (over N) of each dimension, and whether there is any variance.

    Both carry a gradient. Equal rows have none, nor does one row.

    >>> column_moments(torch.tensor([[1.0], [3.0]]))
    (tensor([2.]), tensor([1.]), True)
    """
    mean_D = x_ND.mean(dim=0)
    variance_D = (x_ND - mean_D).square().mean(dim=0)
    return mean_D, variance_D, has_scatter(x_ND.detach()) and bool(variance_D.detach().sum() > 0)


def fit_standardize(
    x_ND: Tensor, *, epsilon: float = 1e-4, keep_scale: bool = True
) -> StandardizeStats:
    """Mean μ and factor s/√(σ² + ε·mean σ²) of each dimension.

    s is 1, or with `keep_scale` what gives the result the rms norm of the rows (their mean
    included). A cloud without scatter gets mean 0 and factor 1, and its rows are counted.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. The mean carries a gradient, the factor none.

    Timkey and van Schijndel 2021; ε and `keep_scale` are ours.

    >>> fit_standardize(torch.tensor([[0.0, 0.0], [2.0, 8.0]]), keep_scale=False).mean_D.tolist()
    [1.0, 4.0]
    """
    mean_D, variance_D, scattered = column_moments(x_ND)
    passed = torch.tensor(0.0 if scattered else float(len(x_ND)))
    counters = {"rows_passed_through": passed}
    if not scattered:
        width = x_ND.shape[1]
        return StandardizeStats(x_ND.new_zeros(width), x_ND.new_ones(width), counters)
    variance_D = variance_D.detach()
    factor_D = (variance_D + epsilon * variance_D.mean()).rsqrt()
    if keep_scale:
        before = x_ND.detach().square().mean()
        factor_D = factor_D * (before / (variance_D * factor_D.square()).mean()).sqrt()
    return StandardizeStats(mean_D, factor_D, counters)


def apply_standardize(x_ND: Tensor, stats: StandardizeStats) -> Tensor:
    """Centred rows times the factor of each dimension, `[N, D]`.

    >>> stats = StandardizeStats(torch.tensor([1.0]), torch.tensor([0.5]), {})
    >>> apply_standardize(torch.tensor([[5.0]]), stats).tolist()
    [[2.0]]
    """
    return (x_ND - stats.mean_D) * stats.factor_D


class Standardize(FittedTransform[StandardizeStats]):
    """Isotropy layer `[N, D] -> [N, D]`: the z-score of each dimension.

    y = s·(x − μ)/√(σ² + ε·mean σ²), without parameters. A shift of the rows changes nothing with
    `keep_scale=False`, and only the one number s with `keep_scale=True`. Uniform scale comes out
    as it went in with `keep_scale=True`, and is divided out otherwise. A rotation changes
    everything. In training, gradient goes through x and μ; the factor is detached, so it is
    G − mean G, times the factor (`batch_norm` has the gradient of the variance too).
    `FittedTransform` says where the statistics come from.

    Args:
        width: D.
        epsilon: ε, part of the mean variance that is added to each; a dimension that does not
            vary is 0, not noise.
        keep_scale: whether the rms norm of the rows is kept.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Timkey and van Schijndel 2021 (post hoc there, over a corpus).

    >>> layer = Standardize(width=1, keep_scale=False, stats="batch")
    >>> layer(torch.tensor([[2.0], [6.0]])).round(decimals=3).tolist()
    [[-1.0], [1.0]]
    """

    mean_D: Tensor
    factor_D: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        epsilon: Annotated[float, Bounds(above=0)] = 1e-4,
        keep_scale: bool = True,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        empty = StandardizeStats(torch.zeros(width), torch.zeros(width), {})
        super().__init__(width, empty, stats, eval_stats, queue_rows)
        self.epsilon, self.keep_scale = epsilon, keep_scale

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> StandardizeStats:
        """Mean and factor of each dimension."""
        return fit_standardize(rows_ND, epsilon=self.epsilon, keep_scale=self.keep_scale)

    def transform(self, rows_ND: Tensor, stats: StandardizeStats, are_last: bool) -> Tensor:
        """Rows with standardized dimensions."""
        return apply_standardize(rows_ND, stats)
