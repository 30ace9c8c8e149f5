"""Centring, as an isotropy layer. N embeddings, D width."""

from typing import Any

from isotrain.transforms.cluster_pca import ClusterPCA


class Mean(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: subtract the mean of all embeddings, y = x − m.

    Mu and Viswanath 2018 (its first step).

    >>> import torch
    >>> Mean(width=2, stats="batch")(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self, width: int, **statistics: Any) -> None:
        super().__init__(width, n_clusters=1, n_components=0, **statistics)
