"""The control of cluster PCA: random directions, as an isotropy layer. R directions, D width."""

from dataclasses import replace

import torch

from isotrain.geometry.cluster_pca import CenteredClusters, ClusterPCAStats
from isotrain.transforms.cluster_pca import ClusterPCA


class RandomDirections(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: `ClusterPCA` with random directions, a control.

    As many as there are dominant ones, drawn from the seed for each cluster, once for all.

    Ours.

    >>> layer = RandomDirections(width=2, n_clusters=1, n_components=1, rho=1.0, stats="batch")
    >>> y = layer(torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]]))
    >>> int(torch.linalg.matrix_rank(y))
    1
    """

    def fit_directions(self, clusters: CenteredClusters, exact: bool) -> ClusterPCAStats:
        """Random directions, zero where the dominant ones are."""
        stats = super().fit_directions(clusters, exact)
        rng = torch.Generator().manual_seed(self.seed)
        random_KDR = torch.randn(stats.direction_KDR.shape, generator=rng, dtype=torch.float64)
        random_KDR = torch.linalg.qr(random_KDR)[0].to(stats.direction_KDR)
        is_real_K1R = stats.direction_KDR.abs().sum(dim=1, keepdim=True) > 0
        return replace(stats, direction_KDR=random_KDR * is_real_K1R)
