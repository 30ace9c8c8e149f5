"""Partial whitening with a spectrum-dependent exponent, as a layer. N embeddings, D."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.whitening import TemperStats, tempering_map
from isotrain.transforms.fitted import FittedTransform, Positive, Share


class SpectralTemper(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: whitening with the smallest sufficient exponent.

    y = (x − μ)·U diag(λ'^(−α/2)) Uᵀ·s: variances become λ'^(1−α) instead of λ'. U are the
    eigenvectors of the covariance, λ' its eigenvalues corrected for the sampling spread of N
    embeddings (`corrected_spectrum`), and s keeps the rms norm of centred embeddings. α
    is the smallest exponent in [0, 1] for which the participation ratio (Σλ)²/Σλ² of λ'^(1−α)
    reaches `target` times D, that of an isotropic cloud: 0 only subtracts the mean, 1 is soft
    `zca` with an ε from the noise. It is logged as the counter `alpha`, and frozen with the map.
    New embeddings miss the target unless N is far above D, because their directions differ.

    Equivariant to rotation and uniform scale, invariant to shifts. The gradient flows through x and
    μ; the matrix and α are constants. A cloud without scatter passes through unchanged, and is
    counted.

    Args:
        width: D.
        target: participation ratio to reach, as a share of D, in (1/D, 1]; 1 = whitening.

    Raises:
        ValueError: a target that is met by any cloud.

    Ours.

    >>> x = torch.tensor([[4.0, 1.0], [4.0, -1.0], [-4.0, 1.0], [-4.0, -1.0]]).repeat(99, 1)
    >>> layer = SpectralTemper(width=2, target=1.0, stats="batch")
    >>> layer(x)[0].round().tolist()  # √8.5 each, but for the noise
    [3.0, 3.0]
    >>> round(layer.counters["alpha"].item(), 3)
    1.0
    """

    @checked
    def __init__(
        self,
        width: Positive,
        target: Share = 0.5,
        **statistics: Any,
    ) -> None:
        if target * width <= 1.0:
            raise ValueError(
                f"target must be above 1/width = {1 / width:.3g}, got {target}: every cloud has a "
                "participation ratio of 1 or more, so alpha would be 0; raise target, or use "
                "isotropy=mean"
            )
        empty = TemperStats(torch.zeros(width), torch.zeros(width, width), torch.zeros(()), {})
        super().__init__(width, empty, **statistics)
        self.target = target

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> TemperStats:
        """Mean, matrix and exponent."""
        return tempering_map(x_ND, self.target)

    def transform(self, x_ND: Tensor, stats: TemperStats, are_last: bool) -> Tensor:
        """(x − μ) @ matrix."""
        return (x_ND - stats.centre_D) @ stats.matrix_DD

    def _frozen(self, dtype: torch.dtype) -> Any:
        stats = super()._frozen(dtype)
        # With a single map (stats=start), its exponent is logged too.
        return replace(stats, counters={"alpha": stats.alpha}) if self.training else stats
