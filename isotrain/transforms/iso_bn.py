"""Isotropic batch normalisation, as an isotropy layer. N rows, D width."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity, FittedTransform
from isotrain.transforms.standardize import column_moments


class IsoBnStats(NamedTuple):
    """The scale `[D]` that `fit_iso_bn` estimates and `apply_iso_bn` uses."""

    scale_D: Tensor
    counters: dict[str, Tensor]


@torch.no_grad()
def fit_iso_bn(x_ND: Tensor, *, beta: float = 0.5, epsilon: float = 1e-3) -> IsoBnStats:
    """The scale a `[D]` of each dimension, above 0 and unitless, without gradient.

    a_i = (γ_i·σ_i + ε·mean σ)^−β with γ_i = mean_j ρ_ij² (j = i included), ρ the correlations;
    then all times √(Σσ²/Σσ²a²), so that the total variance is kept. A dimension that does not vary
    correlates with none. A cloud without scatter gets scale 1, and its rows are counted.

    `x [N, D]`: finite float32 or float64 rows, N ≥ 1, which is not checked.
    O(N·D²) time.

    Zhou, Lin and Ren 2021, where ε is absolute: the same for a mean standard deviation of 1.

    >>> stats = fit_iso_bn(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), epsilon=0.0)
    >>> (stats.scale_D.square() * 0.6).round(decimals=4).tolist()  # ∝ 1/σ
    [1.0, 0.5]
    """
    mean_D, variance_D, scattered = column_moments(x_ND)
    passed = torch.tensor(0.0 if scattered else float(len(x_ND)))
    counters = {"rows_passed_through": passed}
    if not scattered:
        return IsoBnStats(torch.ones_like(mean_D), counters)
    sd_D = variance_D.sqrt()
    z_ND = (x_ND - mean_D) / torch.where(sd_D > 0, sd_D, 1.0)
    gamma_D = (z_ND.T @ z_ND / len(x_ND)).square().mean(dim=0)
    scale_D = (gamma_D * sd_D + epsilon * sd_D.mean()).pow(-beta)
    kept = (variance_D.sum() / (variance_D * scale_D.square()).sum()).sqrt()
    return IsoBnStats(scale_D * kept, counters)


def apply_iso_bn(x_ND: Tensor, stats: IsoBnStats) -> Tensor:
    """Rows times the scale of each dimension, y_i = a_i·x_i, `[N, D]`, in units of the rows.

    `x [N, D]`: finite rows, which is not checked.

    Zhou, Lin and Ren 2021.

    >>> apply_iso_bn(torch.ones(1, 2), IsoBnStats(torch.tensor([3.0, 0.5]), {})).tolist()
    [[3.0, 0.5]]
    """
    return x_ND * stats.scale_D


class IsoBn(FittedTransform[IsoBnStats]):
    """Isotropy layer `[N, D] -> [N, D]`: dimensions of high variance and correlation shrunk.

    y_i = a_i·x_i; `fit_iso_bn` has the formula. The mean is not subtracted, the total variance
    is kept, and uniform scale goes through. The scale is detached, as published: gradient goes
    through the rows alone, times the scale. Nothing is learned.

    Published with moving averages (momentum .05, not corrected for their start, not saved).
    Here the statistics are those of the batch and a queue of recent rows: right from the first
    step, in the checkpoint, frozen for evaluation. Averages of momentum .05 weigh about 39
    batches of 16 rows; the queue is of that order. Few rows bias γ upwards, by about 1/(N − 1)
    where nothing correlates, so that `stats=batch` mostly shrinks by variance alone.

    Args:
        width: D.
        beta: β, strength; 0 = the rows as they are.
        epsilon: ε, part of the mean standard deviation that is added to each γσ.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Zhou, Lin and Ren 2021 (IsoBN, on BERT's pooler output).

    >>> layer = IsoBn(width=2, beta=0.0, stats="batch")
    >>> layer(torch.tensor([[1.0, 2.0], [3.0, 0.0]])).tolist()
    [[1.0, 2.0], [3.0, 0.0]]
    """

    scale_D: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        beta: Annotated[float, Bounds(least=0)] = 0.5,
        epsilon: Annotated[float, Bounds(above=0)] = 1e-3,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        super().__init__(width, IsoBnStats(torch.zeros(width), {}), stats, eval_stats, queue_rows)
        self.beta, self.epsilon = beta, epsilon

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> IsoBnStats:
        """Scale of each dimension."""
        return fit_iso_bn(rows_ND, beta=self.beta, epsilon=self.epsilon)

    def transform(self, rows_ND: Tensor, stats: IsoBnStats, are_last: bool) -> Tensor:
        """Scaled rows."""
        return apply_iso_bn(rows_ND, stats)
