"""PCA whitening, as an isotropy layer. N embeddings, D width, R directions."""

from functools import partial
from typing import Annotated

from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.whitening import WhiteningStats, principal_root, whitening_map
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity, LinearTransform


class Whitening(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: PCA whitening, R leading directions first.

    y = (x − μ)·U diag((λ_i + ε·λ̄)^−1/2)·s in the coordinates of the principal directions, in
    descending order of λ. U and λ are the eigenvectors and eigenvalues of the covariance (divisor
    N − 1), λ̄ = tr C/D, s = √λ̄ with `keep_scale`, else 1. The width stays D: coordinates past R or
    past the rank, at most N − 1, are 0. The largest entry of each direction is positive, so that
    equal clouds give equal coordinates. A cloud without scatter passes unchanged, and is counted.

    Invariant to shifts, and to rotations up to signs of coordinates. The output is in the principal
    axes; `zca` has the same spectrum in the original axes. The gradient flows through x and μ; the
    matrix is detached.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        n_components: R leading directions kept; None = all D.
        keep_scale: multiply by s = √λ̄; else unit variances.
        stats, eval_stats, queue_rows: as in `FittedTransform`.

    Su 2021 (ε = 0, s = 1); ε and s are ours.

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
        self.epsilon, self.keep_scale = epsilon, keep_scale
        self.n_components = n_components or width

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        root = partial(principal_root, n_components=self.n_components)
        return whitening_map(x_ND, self.epsilon, self.keep_scale, root)
