"""PCA whitening, as an isotropy layer. N embeddings, D width, R directions."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.rows import finite_rows, has_scatter, wide
from isotrain.geometry.whitening import (
    WhiteningStats,
    followed_axes,
    principal_root,
    whitening_map,
)
from isotrain.transforms.fitted import LinearTransform, NonNegativeFloat, Positive


class Whitening(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: PCA whitening of R directions, in axes that stay.

    y = (x − μ)·U diag((λ_i + ε·λ̄)^−1/2) Q·s: coordinates along the R leading principal directions,
    turned by a rotation Q. U and λ are the eigenvectors and eigenvalues of the covariance (divisor
    N − 1), λ̄ = tr C/D, s = √λ̄ with `keep_scale`, else 1. The width stays D: coordinates past R are
    0. A cloud without scatter passes unchanged, and is counted.

    The first embeddings of `observe` or `fit` set the axes of the output: there Q = 1, coordinates
    are in descending order of λ, those past the rank (at most N − 1) are 0, and the largest entry
    of each direction is positive, so that equal clouds give equal coordinates. Principal
    directions change their signs, and turn among near-equal eigenvalues, from step to step, which
    no head can learn from. So later Q brings U·Q nearest to the former axes (orthogonal
    Procrustes), and `observe` stores U·Q. Q leaves the spectrum of the output as it is. For R = D
    the axes never move, and the output is that of `zca` up to one rotation, except for directions
    without variance, which are 0 here. For R < D the subspace kept is that of the current leading
    directions: where λ is flat about R, it moves. With `stats="start"` Q stays 1.

    Invariant to shifts; before there are axes, to rotations up to signs of coordinates. The
    gradient flows through x and μ; the matrix is detached.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        n_components: R leading directions kept; None = all D.
        keep_scale: multiply by s = √λ̄; else unit variances.

    Su 2021 (ε = 0, s = 1, one map); ε, s and Q are ours.

    >>> import torch
    >>> layer = Whitening(width=2, epsilon=0.0, n_components=1, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.mul(10).round().tolist()[0]  # √5 of the first direction
    [22.0, 0.0]
    """

    axes_DR: Tensor

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: NonNegativeFloat = 0.1,
        n_components: Positive | None = None,
        keep_scale: bool = True,
        **statistics: Any,
    ) -> None:
        if n_components is not None and n_components > width:
            raise ValueError(
                f"n_components must be at most width={width}, got {n_components}; lower "
                "n_components, or null for all"
            )
        super().__init__(width, **statistics)
        self.epsilon, self.keep_scale = epsilon, keep_scale
        self.n_components = n_components or width
        self.register_buffer("axes_DR", torch.zeros(width, self.n_components))
        self.has_axes = False

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        axes_DR = self.axes_DR.to(x_ND.dtype) if self.has_axes else None
        root = partial(principal_root, n_components=self.n_components, axes_DR=axes_DR)
        return whitening_map(x_ND, self.epsilon, self.keep_scale, root)

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Turn the axes with the leading directions of the queue."""
        is_fixed = self.has_axes and self.n_components == self.width  # they span every direction
        if self.stats != "start" and not is_fixed:
            self._turn_axes(x_MD)

    @torch.no_grad()
    def fit(self, x_ND: Tensor | None = None, labels_N: Tensor | None = None) -> None:
        """Freeze the statistics; with given embeddings before any other, their axes too."""
        super().fit(x_ND, labels_N)
        if x_ND is not None and not self.has_axes:
            with torch.autocast(x_ND.device.type, enabled=False):
                self._turn_axes(finite_rows(wide(x_ND)))

    def _turn_axes(self, x_MD: Tensor) -> None:
        if has_scatter(x_MD):
            axes_DR = self.axes_DR.to(x_MD.dtype) if self.has_axes else None
            centred_MD = x_MD - x_MD.mean(dim=0)
            centred_MD = centred_MD / centred_MD.abs().amax()  # squares stay in range
            self.axes_DR.copy_(followed_axes(centred_MD, axes_DR, self.n_components))
            self.has_axes = True

    def get_extra_state(self) -> Tensor:
        """Whether there are axes to follow."""
        return torch.tensor(self.has_axes)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore it from a checkpoint."""
        self.has_axes = bool(state)
