"""Standardise each dimension, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.rows import has_scatter
from isotrain.transforms.fitted import FittedTransform, Positive, PositiveFloat


@dataclass(frozen=True)
class StandardizeStats:
    """Mean μ, and the factor s/√(σ² + ε·mean σ²) of centred coordinates."""

    mean_D: Tensor
    factor_D: Tensor
    counters: dict[str, Tensor]


def column_moments(x_ND: Tensor) -> tuple[Tensor, Tensor, bool, dict[str, Tensor]]:
    """Mean and variance (over N) of each dimension, whether any is above 0, and a counter."""
    mean_D = x_ND.mean(dim=0)
    variance_D = (x_ND - mean_D).square().mean(dim=0)
    scattered = has_scatter(x_ND.detach()) and bool(variance_D.detach().sum() > 0)
    n_passed = torch.tensor(0.0 if scattered else float(len(x_ND)))
    return mean_D, variance_D, scattered, {"rows_passed_through": n_passed}


class Standardize(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: the z-score of each dimension.

    y = s·(x − μ)/√(σ² + ε·mean σ²), without parameters, σ² over N. s is 1, or with `keep_scale` it
    preserves the rms norm of the embeddings (their mean included). A cloud without scatter passes
    through unchanged, and is counted.

    With `keep_scale` it is equivariant to uniform scale; without, invariant to shift and scale. It
    depends on the axes. The gradient flows through x and μ; the factor is detached
    (`batch_norm` has the gradient of the variance too).

    Args:
        width: D.
        epsilon: ε, fraction of the mean variance added to each; a constant dimension becomes 0,
            not noise.
        keep_scale: whether the rms norm is kept.

    Timkey and van Schijndel 2021 (post hoc there, over a corpus); ε and `keep_scale` are ours.

    >>> layer = Standardize(width=1, keep_scale=False, stats="batch")
    >>> layer(torch.tensor([[2.0], [6.0]])).round(decimals=3).tolist()
    [[-1.0], [1.0]]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: PositiveFloat = 1e-4,
        keep_scale: bool = True,
        **statistics: Any,
    ) -> None:
        empty = StandardizeStats(torch.zeros(width), torch.zeros(width), {})
        super().__init__(width, empty, **statistics)
        self.epsilon, self.keep_scale = epsilon, keep_scale

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> StandardizeStats:
        """Mean, with a gradient, and factor of each dimension."""
        mean_D, variance_D, scattered, counters = column_moments(x_ND)
        if not scattered:
            return StandardizeStats(
                mean_D.new_zeros(len(mean_D)), torch.ones_like(mean_D), counters
            )
        variance_D = variance_D.detach()
        factor_D = (variance_D + self.epsilon * variance_D.mean()).rsqrt()
        if self.keep_scale:
            mean_square = x_ND.detach().square().mean()
            factor_D = factor_D * (mean_square / (variance_D * factor_D.square()).mean()).sqrt()
        return StandardizeStats(mean_D, factor_D, counters)

    def transform(self, x_ND: Tensor, stats: StandardizeStats, are_last: bool) -> Tensor:
        """Centred embeddings times the factor of each dimension."""
        return (x_ND - stats.mean_D) * stats.factor_D
