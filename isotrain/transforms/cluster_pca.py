"""Cluster centring and removal of dominant directions, as an isotropy layer.

Mean centring, all-but-the-top, cluster mean and cluster PCA are presets of this class: see
`conf/isotropy/`. N embeddings, D width, K clusters, R directions, M recent ones.
"""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Generator, Tensor

from isotrain.arguments import checked
from isotrain.geometry.assignment import Assign, fit_anchors
from isotrain.geometry.cluster_pca import (
    ClusterPCAStats,
    apply_cluster_pca,
    center_clusters,
    fit_cluster_pca,
)
from isotrain.geometry.kmeans import kmeans, reseed_empty
from isotrain.geometry.removal import Grad, Removal, vary_removal
from isotrain.transforms.fitted import FittedTransform

TRAIN_ITERATIONS, FROZEN_ITERATIONS = 3, 100  # of k-means or EM, at most


class ClusterPCA(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    Embeddings are assigned to K clusters; each subtracts the mean of its cluster and loses the
    cluster's R dominant directions: y = (I − V_c·V_cᵀ)(x − m_c). `fit_cluster_pca` estimates,
    `apply_cluster_pca` removes. Statistics come from the batch, as published, or from a queue: see
    `FittedTransform`.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        assign: kmeans | gmm (diagonal Gaussians, by likelihood).
        removal: project takes directions out | random, a control: as many, drawn once | amplify
            multiplies them by 3 | clip shrinks them to the noise floor | shrink_clip, and the
            offsets of clusters from the global mean too.
        level: standard deviation of what is shrunk, in units of the noise floor's.
        rho: a cluster of n_c embeddings loses at most floor(rho·(n_c − 1)) directions.
        grad: what carries a gradient besides the means: detach = nothing | full = directions, noise
            floors and variances (one [D, D] eigenproblem per cluster).
        strength: y = x + strength·(result − x), in [0, 1].
        seed: of the first k-means start (later ones continue from the queue's centroids), and of
            random directions.

    Rajaee and Pilehvar 2021 (cluster-based); Mu and Viswanath 2018 (K = 1).

    >>> layer = ClusterPCA(width=2, n_clusters=1, n_components=0, stats="batch")
    >>> layer(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    of_clusters = True
    warm_KD: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Field(ge=1)],
        n_clusters: Annotated[int, Field(ge=1)] = 8,
        n_components: Annotated[int, Field(ge=0)] = 3,
        assign: Assign = "kmeans",
        removal: Removal = "project",
        level: Annotated[float, Field(gt=0)] = 1.0,
        rho: Annotated[float, Field(gt=0, le=1)] = 0.25,
        grad: Grad = "detach",
        strength: Annotated[float, Field(ge=0, le=1)] = 1.0,
        seed: int = 0,
        **statistics: Any,
    ) -> None:
        self.n_clusters, self.n_components, self.seed = n_clusters, n_components, seed
        self.assign: Assign = assign
        self.removal, self.level, self.rho, self.grad = removal, level, rho, grad
        self.strength = strength
        super().__init__(width, self._empty_statistics(width), **statistics)
        if self.stats == "queue" and n_clusters > len(self.queue.rows_MD):
            raise ValueError(
                f"n_clusters={n_clusters} is more than the embeddings they are formed of, "
                f"queue_rows={len(self.queue.rows_MD)}; use fewer clusters or a longer queue"
            )
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.is_warm = False

    def _empty_statistics(self, width: int) -> ClusterPCAStats:
        """Statistics of zeros and ones, in the shapes of the buffers."""
        n_clusters, n_components = self.n_clusters, self.n_components
        n_mixture = n_clusters if self.assign == "gmm" and n_clusters > 1 else 0
        return ClusterPCAStats(
            anchor_KD=torch.zeros(n_clusters, width),
            centre_KD=torch.zeros(n_clusters, width),
            direction_KDR=torch.zeros(n_clusters, width, n_components),
            removed_KR=torch.ones(n_clusters, n_components),
            variance_KD=torch.ones(n_mixture, width),
            log_weight_K=torch.zeros(n_mixture),
            counters={},
        )

    def estimate(
        self, x_ND: Tensor, to_freeze: bool = False, n_own: int | None = None
    ) -> ClusterPCAStats:
        """Clusters c, their means m_c and dominant directions V_c."""
        generator, init = self._start(x_ND)
        n_iterations = FROZEN_ITERATIONS if to_freeze else TRAIN_ITERATIONS
        anchors, assignment_N = fit_anchors(
            x_ND.detach(),
            self.n_clusters,
            self.assign,
            generator=generator,
            init=init,
            n_iterations=n_iterations,
        )
        # Frozen statistics use the caps of a batch if training statistics are of batches.
        of_batches = self.queue.batch_rows if to_freeze and self.stats == "batch" else 0
        clusters = center_clusters(x_ND, anchors, assignment_N, n_own, effective_rows=of_batches)
        stats = fit_cluster_pca(clusters, self.n_components, self.rho, exact=to_freeze)
        return vary_removal(stats, clusters, self.removal, self.level, self.grad, generator)

    def remove(self, x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None) -> Tensor:
        """(I − V_c·V_cᵀ)(x − m_c), c the given clusters or the nearest ones."""
        return apply_cluster_pca(x_ND, stats, assignment_N)

    def transform(self, x_ND: Tensor, stats: ClusterPCAStats, are_last: bool) -> Tensor:
        """What `remove` gives, or part of the way from x to it if `strength` < 1."""
        all_N = stats.assignment_N if are_last else None
        result_ND = self.remove(x_ND, stats, None if all_N is None else all_N[-len(x_ND) :])
        return result_ND if self.strength == 1.0 else x_ND + self.strength * (result_ND - x_ND)

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Update the initial centroids of k-means."""
        if self.n_clusters == 1:
            return
        generator, init = self._start(x_MD)
        clusters = kmeans(
            x_MD, self.n_clusters, generator=generator, init=init, n_iterations=TRAIN_ITERATIONS
        )
        self.warm_KD.copy_(reseed_empty(x_MD, clusters, generator))
        self.is_warm = True

    def _start(self, x_ND: Tensor) -> tuple[Generator, Tensor | None]:
        """The seeded generator, and the centroids that k-means continues from."""
        init = self.warm_KD.to(x_ND.dtype) if self.is_warm else None
        return Generator().manual_seed(self.seed), init

    def get_extra_state(self) -> Tensor:
        """Whether there are initial centroids."""
        return torch.tensor(self.is_warm)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore it from a checkpoint."""
        self.is_warm = bool(state)
