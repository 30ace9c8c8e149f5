"""Whitening inside shuffled groups of dimensions, as an isotropy layer. N embeddings, D width."""

from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.whitening import (
    WhiteningStats,
    check_group_size,
    inverse_root,
    whitening_map,
)
from isotrain.transforms.fitted import LinearTransform, NonNegativeFloat, Positive


class GroupWhitening(LinearTransform):
    """Isotropy layer `[N, D] -> [N, D]`: ZCA whitening inside shuffled groups of dimensions.

    y = (x − μ)·(C + ε·λ̄·1)^−1/2·s as in `ZCA`, with C the covariance inside a group and λ̄ = tr C/D
    over all groups. Correlations between groups are kept, and a batch of more than `group_size`
    embeddings has full rank. The shuffle is drawn once, from the seed.

    Args:
        width: D.
        epsilon: added to every eigenvalue, relative to their mean λ̄; 0 = full whitening.
        group_size: dimensions whitened together, divides D; None, or D and more = one group.
        keep_scale: multiply by s = √λ̄; else unit variances.
        seed: of the shuffle.

    WhitenedCSE 2023 (groups of 6 of 768, shuffled anew for each of several views); ε is ours.

    >>> layer = GroupWhitening(width=2, epsilon=0.0, group_size=1, stats="batch")
    >>> y = layer(torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]]))
    >>> y.abs().mul(10).round().tolist()[0]  # √5 each
    [22.0, 22.0]
    """

    order_D: Tensor

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: NonNegativeFloat = 0.1,
        group_size: Positive | None = 8,
        keep_scale: bool = True,
        seed: int = 0,
        **statistics: Any,
    ) -> None:
        super().__init__(width, **statistics)
        check_group_size(group_size, width)
        self.epsilon, self.group_size, self.keep_scale = epsilon, group_size, keep_scale
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("order_D", torch.randperm(width, generator=generator))

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
        """Mean and whitening matrix, computed in shuffled order and mapped back."""
        shuffled_ND, inverse_D = x_ND[:, self.order_D], self.order_D.argsort()
        stats = whitening_map(
            shuffled_ND, self.epsilon, self.keep_scale, inverse_root, self.group_size
        )
        matrix_DD = stats.matrix_DD[inverse_D][:, inverse_D]
        return WhiteningStats(stats.centre_D[inverse_D], matrix_DD, stats.counters)
