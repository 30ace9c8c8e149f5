"""Isotropic batch normalisation, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.transforms.fitted import FittedTransform, NonNegativeFloat, Positive, PositiveFloat
from isotrain.transforms.standardize import column_moments


@dataclass(frozen=True)
class IsoBnStats:
    """The scale a of each dimension, above 0 and unitless."""

    scale_D: Tensor
    counters: dict[str, Tensor]


class IsoBn(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: shrinks dimensions of high variance and correlation.

    y_i = a_i·x_i with a_i = (γ_i·σ_i + ε·mean σ)^−β and γ_i = mean_j ρ_ij² (j = i included), ρ the
    correlations; then all a times √(Σσ²/Σσ²a²), so that the total variance is kept. A constant
    dimension correlates with none. A cloud without scatter passes through unchanged, and is
    counted. Equivariant to uniform scale. The scale is detached, as published. O(N·D²) time.

    Published with moving averages (momentum .05, about 39 batches), not corrected for their start
    and not saved; the queue is of that order. Few embeddings bias γ upwards, by about 1/(N − 1)
    without correlations, so that `stats=batch` mostly shrinks by variance alone.

    Args:
        width: D.
        beta: β, strength; 0 = unchanged embeddings.
        epsilon: ε, fraction of the mean standard deviation added to each γσ.

    Zhou, Lin and Ren 2021 (IsoBN, on BERT's pooler output), where ε is absolute: the same for a
    mean standard deviation of 1.

    >>> layer = IsoBn(width=2, epsilon=1e-9, stats="batch")
    >>> layer(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]))[0].square().mul(0.6).round().tolist()
    [1.0, 2.0]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        beta: NonNegativeFloat = 0.5,
        epsilon: PositiveFloat = 1e-3,
        **statistics: Any,
    ) -> None:
        super().__init__(width, IsoBnStats(torch.zeros(width), {}), **statistics)
        self.beta, self.epsilon = beta, epsilon

    @torch.no_grad()
    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> IsoBnStats:
        """Scale of each dimension, without gradient."""
        mean_D, variance_D, scattered, counters = column_moments(x_ND)
        if not scattered:
            return IsoBnStats(torch.ones_like(mean_D), counters)
        sd_D = variance_D.sqrt()
        z_ND = (x_ND - mean_D) / torch.where(sd_D > 0, sd_D, 1.0)
        gamma_D = (z_ND.T @ z_ND / len(x_ND)).square().mean(dim=0)
        scale_D = (gamma_D * sd_D + self.epsilon * sd_D.mean()).pow(-self.beta)
        rescale = (variance_D.sum() / (variance_D * scale_D.square()).sum()).sqrt()
        return IsoBnStats(scale_D * rescale, counters)

    def transform(self, x_ND: Tensor, stats: IsoBnStats, are_last: bool) -> Tensor:
        """Scaled embeddings."""
        return x_ND * stats.scale_D
