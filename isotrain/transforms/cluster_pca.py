"""Cluster centring and removal of dominant directions, as an isotropy layer.

N embeddings, D width, K clusters, R directions, M recent embeddings.
"""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Generator, Tensor

from isotrain.arguments import checked
from isotrain.geometry.cluster_pca import (
    CenteredClusters,
    ClusterPCAStats,
    apply_cluster_pca,
    center_clusters,
    fit_cluster_pca,
)
from isotrain.geometry.kmeans import KMeans, kmeans, nearest_centroid, reseed_empty
from isotrain.transforms.fitted import FittedTransform, NonNegative, Positive, Share

Strength = Annotated[float, Field(ge=0, le=1)]


def iterations(to_freeze: bool) -> int:
    """The most rounds of k-means or EM, for training or for frozen statistics."""
    return 100 if to_freeze else 3


class ClusterPCA(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    Embeddings are assigned to K clusters by k-means; each subtracts the mean of its cluster and
    loses the cluster's R dominant directions: y = (I − V_c·V_cᵀ)(x − m_c). Statistics come from the
    batch, as published, or from a queue: see `FittedTransform`.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        rho: a cluster of n_c embeddings loses at most floor(rho·(n_c − 1)) directions.
        strength: y = x + strength·(result − x), in [0, 1].
        seed: of the first k-means start; later ones continue from the queue's centroids.

    Rajaee and Pilehvar 2021 (cluster-based).

    >>> layer = ClusterPCA(width=2, n_clusters=1, n_components=0, stats="batch")
    >>> layer(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    of_clusters = True
    warm_KD: Tensor

    @checked
    def __init__(
        self,
        width: Positive,
        n_clusters: Positive = 8,
        n_components: NonNegative = 3,
        rho: Share = 0.25,
        strength: Strength = 1.0,
        seed: int = 0,
        **statistics: Any,
    ) -> None:
        self.n_clusters, self.n_components, self.rho = n_clusters, n_components, rho
        self.strength, self.seed = strength, seed
        super().__init__(width, self.empty(width), **statistics)
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.is_warm = False

    def empty(self, width: int) -> ClusterPCAStats:
        """Statistics in the shapes of the buffers."""
        centre_KD = torch.zeros(self.n_clusters, width)
        direction_KDR = torch.zeros(self.n_clusters, width, self.n_components)
        return ClusterPCAStats(centre_KD.clone(), centre_KD, direction_KDR, {})

    def estimate(
        self, x_ND: Tensor, to_freeze: bool = False, n_new: int | None = None
    ) -> ClusterPCAStats:
        """Clusters c, their means m_c and dominant directions V_c."""
        generator = Generator().manual_seed(self.seed)
        clusters = self.cluster(x_ND.detach(), iterations(to_freeze), generator)
        return self.fit_clusters(x_ND, clusters, to_freeze, n_new)

    def cluster(self, x_ND: Tensor, n_iterations: int, generator: Generator) -> KMeans:
        """Clusters by k-means, from the centroids of the queue if there are any."""
        init = self.warm_KD.to(x_ND.dtype) if self.is_warm else None
        return kmeans(
            x_ND, self.n_clusters, generator=generator, init=init, n_iterations=n_iterations
        )

    def fit_clusters(
        self, x_ND: Tensor, clustering: KMeans, to_freeze: bool, n_new: int | None
    ) -> ClusterPCAStats:
        """Means and directions of given clusters."""
        # Frozen statistics use the caps of a batch if training statistics are of batches.
        effective_rows = self.queue.batch_rows if to_freeze and self.stats == "batch" else 0
        clusters = center_clusters(x_ND, clustering, n_new, effective_rows)
        return self.fit_directions(clusters, exact=to_freeze)

    def fit_directions(self, clusters: CenteredClusters, exact: bool) -> ClusterPCAStats:
        """The dominant directions of each cluster."""
        return fit_cluster_pca(clusters, self.n_components, self.rho, exact)

    def transform(self, x_ND: Tensor, stats: Any, are_last: bool) -> Tensor:
        """What `remove` gives, or part of the way from x to it if `strength` < 1."""
        fitted_N = stats.assignment_N if are_last else None
        cluster_N = self.nearest(x_ND, stats) if fitted_N is None else fitted_N[-len(x_ND) :]
        result_ND = self.remove(x_ND, stats, cluster_N)
        return result_ND if self.strength == 1.0 else x_ND + self.strength * (result_ND - x_ND)

    def nearest(self, x_ND: Tensor, stats: Any) -> Tensor:
        """The cluster `[N]` of each embedding."""
        return nearest_centroid(x_ND, stats.anchor_KD)

    def remove(self, x_ND: Tensor, stats: Any, assignment_N: Tensor) -> Tensor:
        """(I − V_c·V_cᵀ)(x − m_c), c the given clusters."""
        return apply_cluster_pca(x_ND, stats, assignment_N)

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Update the initial centroids of k-means."""
        if self.n_clusters > 1:
            generator = Generator().manual_seed(self.seed)
            clusters = self.cluster(x_MD, iterations(to_freeze=False), generator)
            self.warm_KD.copy_(reseed_empty(x_MD, clusters, generator))
            self.is_warm = True

    def get_extra_state(self) -> Tensor:
        """Whether there are initial centroids."""
        return torch.tensor(self.is_warm)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore it from a checkpoint."""
        self.is_warm = bool(state)
