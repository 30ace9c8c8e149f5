"""Iterative (Newton–Schulz) whitening, as an isotropy layer. N embeddings, D width."""

from functools import partial
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.whitening import (
    WhiteningStats,
    check_group_size,
    newton_inverse_root,
    whitening_map,
)
from isotrain.transforms.fitted import LinearTransform, Positive, PositiveFloat


class IterNorm(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: ZCA whitening with a gradient through the whitening.

    y = (x − μ)·(C + ε·λ̄·1)^−1/2·s as in `ZCA`, with C the covariance inside groups of neighbouring
    dimensions and λ̄ = tr C/D over all groups. The root is computed by coupled Newton–Schulz
    iteration, at 6·D·S² flops per iteration (S the group size). The gradient flows through x, μ,
    the matrix and s: for embeddings of the batch, not of the queue.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; above 0, else directions
            without variance do not converge.
        group_size: neighbouring dimensions whitened together, divides D; None, or D and more = one
            group.
        n_iterations: T; more for a smaller epsilon or a larger group.
        keep_scale: multiply by s = √λ̄; else unit variances.

    Huang 2019; its plain recursion diverges in float32, hence the coupled form.

    >>> import torch
    >>> layer = IterNorm(width=2, epsilon=1e-6, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.abs().mul(10).round().tolist()[0]  # √5 each
    [22.0, 22.0]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: PositiveFloat = 0.1,
        group_size: Positive | None = 64,
        n_iterations: Annotated[int, Field(ge=15)] = 20,
        keep_scale: bool = True,
        **statistics: Any,
    ) -> None:
        super().__init__(width, **statistics)
        check_group_size(group_size, width)
        self.epsilon, self.group_size, self.n_iterations = epsilon, group_size, n_iterations
        self.keep_scale = keep_scale

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix."""
        root = partial(newton_inverse_root, n_iterations=self.n_iterations)
        return whitening_map(
            x_ND, self.epsilon, self.keep_scale, root, self.group_size, differentiable=True
        )
