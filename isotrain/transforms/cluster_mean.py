"""Centring of clusters, as an isotropy layer. N embeddings, D width, K clusters."""

from typing import Any

from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import Positive


class ClusterMean(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: subtract the mean of each embedding's k-means cluster.

    Rajaee and Pilehvar 2021 (the first step of `ClusterPCA`).

    >>> import torch
    >>> layer = ClusterMean(width=1, n_clusters=2, stats="batch")
    >>> x = torch.tensor([0.0, 1.0, 2.0, 3.0, 70.0, 71.0, 72.0, 73.0])[:, None]
    >>> layer(x).flatten().tolist()
    [-1.5, -0.5, 0.5, 1.5, -1.5, -0.5, 0.5, 1.5]
    """

    def __init__(
        self, width: int, n_clusters: Positive = 8, seed: int = 0, **statistics: Any
    ) -> None:
        super().__init__(width, n_clusters, n_components=0, seed=seed, **statistics)
