"""Soft ZCA whitening, as an isotropy layer. N embeddings, D width."""

from typing import Any

from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.whitening import WhiteningStats, inverse_root, whitening_map
from isotrain.transforms.fitted import LinearTransform, NonNegativeFloat, Positive


class ZCA(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: soft ZCA whitening.

    y = (x − μ)·U diag((λ + ε·λ̄)^−1/2) Uᵀ·s, the whitening that moves embeddings least. U and λ are
    the eigenvectors and eigenvalues of the covariance (divisor N − 1), λ̄ = tr C/D, s = √λ̄ with
    `keep_scale`, else 1. ε = 0 whitens fully where N > D; directions without variance then have
    the factor 0, otherwise (ε·λ̄)^−1/2. A cloud without scatter passes unchanged, and is counted.

    Equivariant to rotation and, with `keep_scale`, to uniform scale; invariant to shifts. Variance
    λ becomes λ̄·λ/(λ + ε·λ̄): with s the rms norm of centred embeddings is about the same for N > D
    and about √((N − 1)/D) of it for N far below D. The gradient flows through x and μ; the matrix
    is detached.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        keep_scale: multiply by s = √λ̄; else unit variances.

    Diera 2024; ε relative to λ̄ is ours.

    >>> import torch
    >>> layer = ZCA(width=2, epsilon=0.0, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.abs().mul(10).round().tolist()[0]  # √5 each
    [22.0, 22.0]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: NonNegativeFloat = 0.1,
        keep_scale: bool = True,
        **statistics: Any,
    ) -> None:
        super().__init__(width, **statistics)
        self.epsilon, self.keep_scale = epsilon, keep_scale

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        return whitening_map(x_ND, self.epsilon, self.keep_scale, inverse_root)
