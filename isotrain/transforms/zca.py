"""Soft ZCA whitening, as an isotropy layer. N rows, D width."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.whitening import WhiteningStats, inverse_root, whitening_map
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity
from isotrain.transforms.linear import LinearTransform


def fit_zca(x_ND: Tensor, epsilon: float = 0.1, *, keep_scale: bool = True) -> WhiteningStats:
    """Mean μ and whitening matrix s·U diag((λ + ε·λ̄)^−1/2) Uᵀ.

    U and λ are the eigenvectors and eigenvalues of the covariance of the rows (divisor N − 1),
    λ̄ = tr C/D. s = √λ̄ with `keep_scale`, else 1. ε = 0 whitens fully where N > D; directions
    without variance then have the factor 0, otherwise (ε·λ̄)^−1/2. A cloud without scatter (one
    row, equal rows) is left as it is, and counted.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. The mean carries a gradient, the matrix does
    not. Diera 2024; ε relative to λ̄ is ours.

    >>> import torch
    >>> stats = fit_zca(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), 1.0)
    >>> [round(v, 5) for v in stats.matrix_DD.diagonal().tolist()]
    [0.57735, 1.0]
    """
    return whitening_map(x_ND, epsilon, keep_scale, inverse_root)


class ZCA(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: soft ZCA whitening.

    y = (x − μ)·U diag((λ + ε·λ̄)^−1/2) Uᵀ·s, the whitening that moves rows least. It commutes
    with rotations, ignores a shift of all rows and, with `keep_scale`, a common factor passes
    through. Variance λ becomes λ̄·λ/(λ + ε·λ̄): with s the rms norm of centred rows is about
    kept for N > D, and falls to about √((N − 1)/D) of it for N rows far below D. The gradient
    runs through x and μ; the matrix is detached. `FittedTransform` says where the statistics
    come from.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        keep_scale: multiply by s = √λ̄; else unit variances.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Diera 2024.

    >>> import torch
    >>> layer = ZCA(width=2, epsilon=0.0, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.abs().mul(10).round().tolist()[0]  # √5 each
    [22.0, 22.0]
    """

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        epsilon: Annotated[float, Bounds(0)] = 0.1,
        keep_scale: bool = True,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        super().__init__(width, stats, eval_stats, queue_rows)
        self.epsilon, self.keep_scale = epsilon, keep_scale

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        return fit_zca(rows_ND, self.epsilon, keep_scale=self.keep_scale)
