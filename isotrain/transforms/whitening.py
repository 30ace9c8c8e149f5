"""PCA whitening, as an isotropy layer. N rows, D width, R directions."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.whitening import WhiteningStats, principal_root, whitening_map
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity
from isotrain.transforms.linear import LinearTransform


def fit_whitening(
    x_ND: Tensor,
    epsilon: float = 0.1,
    n_components: int | None = None,
    *,
    keep_scale: bool = True,
) -> WhiteningStats:
    """Mean μ and matrix s·U diag((λ_i + ε·λ̄)^−1/2) of the R leading principal directions.

    U and λ are the eigenvectors and eigenvalues of the covariance of the rows (divisor N − 1) in
    falling order, λ̄ = tr C/D. s = √λ̄ with `keep_scale`, else 1. The largest entry of each
    direction is positive, so that equal rows give equal coordinates. Columns past R
    (`n_components`; None = D) or past the rank, at most N − 1, are 0. A cloud without scatter
    (one row, equal rows) is left as it is, and counted.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. The mean carries a gradient, the matrix does
    not. Su 2021 (ε = 0, s = 1); ε and s are ours.

    >>> import torch
    >>> stats = fit_whitening(torch.tensor([[0.0, 1.0], [0.0, -1.0]]), 1.0)
    >>> [round(v, 5) for v in stats.matrix_DD[1].tolist()]
    [0.57735, 0.0]
    """
    root = partial(principal_root, n_components=n_components or x_ND.shape[1])
    return whitening_map(x_ND, epsilon, keep_scale, root)


class Whitening(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: PCA whitening, R leading directions first.

    y = (x − μ)·U diag((λ_i + ε·λ̄)^−1/2)·s in the coordinates of the principal directions; the
    coordinates past R are 0, the width stays D. It ignores a shift of all rows; a rotation of
    them changes at most the signs of coordinates. A head after it meets other coordinates
    whenever the directions turn: `zca` has the same spectrum and stays in the old ones. The
    gradient runs through x and μ; the matrix is detached. `FittedTransform` says where the
    statistics come from.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        n_components: R leading directions kept; None = all D.
        keep_scale: multiply by s = √λ̄; else unit variances.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Su 2021.

    >>> import torch
    >>> layer = Whitening(width=2, epsilon=0.0, n_components=1, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.mul(10).round().tolist()[0]  # √5 of the first direction
    [22.0, 0.0]
    """

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        epsilon: Annotated[float, Bounds(0)] = 0.1,
        n_components: Annotated[int | None, Bounds(1)] = None,
        keep_scale: bool = True,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        if n_components is not None and n_components > width:
            raise ValueError(
                f"n_components must be at most width={width}, got {n_components}; lower "
                "n_components, or null for all"
            )
        super().__init__(width, stats, eval_stats, queue_rows)
        self.epsilon, self.n_components, self.keep_scale = epsilon, n_components, keep_scale

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        return fit_whitening(rows_ND, self.epsilon, self.n_components, keep_scale=self.keep_scale)
