"""Whitening by an iteration of matrix products, as an isotropy layer. N rows, D width."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.whitening import (
    WhiteningStats,
    newton_inverse_root,
    whitening_map,
    whole_groups,
)
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity
from isotrain.transforms.linear import LinearTransform

Grad = Literal["full", "detach"]


def fit_iter_norm(
    x_ND: Tensor,
    epsilon: float = 0.1,
    group_size: int | None = None,
    *,
    n_iterations: int = 20,
    grad: Grad = "full",
    keep_scale: bool = True,
) -> WhiteningStats:
    """Mean μ and whitening matrix s·(C + ε·λ̄·1)^−1/2 inside groups of dimensions.

    The matrix is that of `fit_zca`, found by the coupled Newton–Schulz iteration without an
    eigenproblem, so that it can carry a gradient (`grad="full"`). C is the covariance of the rows
    (divisor N − 1) inside each group of `group_size` neighbouring dimensions (None = one group),
    λ̄ = tr C/D over all groups; s = √λ̄ with `keep_scale`, else 1. A cloud without scatter (one
    row, equal rows) is left as it is, and counted.

    `x_ND`: finite float32 or float64 rows, N ≥ 1; ε above 0, else directions without variance
    do not converge. Huang 2019; its plain recursion diverges in float32, hence the coupled form.

    Raises:
        ValueError: a group size that does not divide the width.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> [round(v, 5) for v in fit_iter_norm(x, 1.0).matrix_DD.diagonal().tolist()]
    [0.57735, 1.0]
    """
    root = partial(newton_inverse_root, n_iterations=n_iterations)
    size = whole_groups(x_ND.shape[1], group_size)
    return whitening_map(x_ND, epsilon, keep_scale, root, size, differentiable=grad == "full")


class IterNorm(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: ZCA whitening with a gradient through the whitening.

    y = (x − μ)·(C + ε·λ̄·1)^−1/2·s inside groups of neighbouring dimensions. It ignores a shift
    of all rows; with `keep_scale` a common factor passes through. The gradient runs through x, μ
    and, under `grad="full"`, the matrix and s: of the batch rows, not of the queue's. Iterations
    cost 6·D·S² flops each (S the group size). `FittedTransform` says where the statistics come
    from.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄.
        group_size: neighbouring dimensions whitened together; None, or D and more = one group.
        n_iterations: T; more for a smaller epsilon or a larger group.
        grad: full | detach, whether the matrix carries a gradient.
        keep_scale: multiply by s = √λ̄; else unit variances.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Huang 2019.

    >>> import torch
    >>> layer = IterNorm(width=2, epsilon=1e-6, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.abs().mul(10).round().tolist()[0]  # √5 each
    [22.0, 22.0]
    """

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        epsilon: Annotated[float, Bounds(above=0)] = 0.1,
        group_size: Annotated[int | None, Bounds(1)] = 64,
        n_iterations: Annotated[int, Bounds(15)] = 20,
        grad: Grad = "full",
        keep_scale: bool = True,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        size = whole_groups(width, group_size)
        super().__init__(width, stats, eval_stats, queue_rows)
        self.epsilon, self.group_size, self.n_iterations = epsilon, size, n_iterations
        self.grad, self.keep_scale = grad, keep_scale

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        return fit_iter_norm(
            rows_ND,
            self.epsilon,
            self.group_size,
            n_iterations=self.n_iterations,
            grad=self.grad,
            keep_scale=self.keep_scale,
        )
