"""Dominant directions amplified, as an isotropy layer. N embeddings, D width, R directions."""

from typing import Any

from torch import Tensor

from isotrain.geometry.cluster_pca import ClusterPCAStats, apply_cluster_pca
from isotrain.transforms.all_but_the_top import AllButTheTop
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import NonNegative, Share

GAIN = 3.0  # factor of amplified directions


class AntiClip(AllButTheTop):
    """Isotropy layer `[N, D] -> [N, D]`: amplify R dominant directions, the opposite of `Clip`.

    The mean is subtracted, coordinates along the leading directions of all embeddings are
    multiplied by 3: one map, fitted before training.

    Ours.

    >>> import torch
    >>> x = torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])
    >>> layer = AntiClip(width=2, n_components=1, rho=1.0)
    >>> layer.fit(x)
    >>> layer(x)[0].abs().tolist()
    [12.0, 1.0]
    """

    def __init__(
        self,
        width: int,
        n_components: NonNegative = 3,
        rho: Share = 0.25,
        stats: TrainStats = "start",
        eval_stats: EvalStats = "refit",
        **statistics: Any,
    ) -> None:
        statistics |= {"stats": stats, "eval_stats": eval_stats}
        super().__init__(width, n_components, rho, **statistics)

    def remove(self, x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor) -> Tensor:
        """The centred embeddings with three times their dominant directions."""
        return apply_cluster_pca(x_ND, stats, assignment_N, 1.0 - GAIN)
