"""Cluster PCA with a Gaussian mixture, as an isotropy layer. N embeddings, D width, K clusters."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from isotrain.geometry.cluster_pca import ClusterPCAStats
from isotrain.geometry.mixture import Mixture, fit_mixture, likeliest
from isotrain.transforms.cluster_pca import ClusterPCA, iterations


@dataclass(frozen=True, kw_only=True)
class MixtureStats(ClusterPCAStats):
    """Statistics of `ClusterPCA`, whose anchors are the means of a mixture."""

    variance_KD: Tensor
    log_weight_K: Tensor


class GmmPCA(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: `ClusterPCA` with a diagonal Gaussian mixture.

    EM starts from the clusters of k-means; an embedding belongs to its likeliest component.

    Rajaei and Sheikhi 2020.

    >>> layer = GmmPCA(width=1, n_clusters=2, n_components=0, stats="batch")
    >>> x = torch.tensor([0.0, 1.0, 2.0, 3.0, 70.0, 71.0, 72.0, 73.0])[:, None]
    >>> layer(x).flatten().tolist()
    [-1.5, -0.5, 0.5, 1.5, -1.5, -0.5, 0.5, 1.5]
    """

    def empty(self, width: int) -> MixtureStats:
        """Statistics in the shapes of the buffers."""
        variance_KD, log_weight_K = torch.ones(self.n_clusters, width), torch.zeros(self.n_clusters)
        return MixtureStats(
            **vars(super().empty(width)), variance_KD=variance_KD, log_weight_K=log_weight_K
        )

    def estimate(
        self, x_ND: Tensor, to_freeze: bool = False, n_new: int | None = None
    ) -> MixtureStats:
        """The components of a mixture, their means and dominant directions."""
        detached_ND, n_iterations = x_ND.detach(), iterations(to_freeze)
        start = self.cluster(detached_ND, n_iterations, Generator().manual_seed(self.seed))
        mixture = fit_mixture(detached_ND, start, n_iterations)
        clusters = start._replace(assignment_N=likeliest(detached_ND, mixture))
        stats = self.fit_clusters(x_ND, clusters, to_freeze, n_new)
        return MixtureStats(**{**vars(stats), **mixture._asdict()})

    def nearest(self, x_ND: Tensor, stats: MixtureStats) -> Tensor:
        """The likeliest component `[N]` of each embedding."""
        return likeliest(x_ND, Mixture(stats.anchor_KD, stats.variance_KD, stats.log_weight_K))
