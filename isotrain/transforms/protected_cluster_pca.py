"""Cluster PCA beside protected directions, as an isotropy layer.

N embeddings, D width, K clusters, R directions of a cluster, J protected directions.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.assignment import KMEANS, Assignment
from isotrain.geometry.cluster_pca import ClusterPCAStats, fit_protected_cluster_pca
from isotrain.geometry.cluster_removal import PROJECT, Removal
from isotrain.geometry.spared import LEADING, Protection, fit_spared, without
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import Capacity
from isotrain.transforms.queue import RowQueue


class ProtectedClusterPCA(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: cluster PCA that leaves some directions out.

    `Protection` says which: leading directions of all embeddings, or the between-class directions
    of the labels of training examples. They are set aside, cluster PCA acts on what remains, and
    they come back shrunk to the bulk level of the result.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        protect: what is set aside; three leading directions by default.
        assign: how embeddings are assigned to clusters.
        removal: what a cluster loses.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch; batch would read labels in evaluation.
        queue_rows: how many recent embeddings are kept (queue_rows·D·4 bytes).
        seed: of k-means and of random directions.

    Raises:
        ValueError: an illegal number or name, or labels with `eval_stats="batch"`.
        RuntimeError: frozen evaluation before `fit`.

    Ours.

    >>> layer = ProtectedClusterPCA(2, 1, 0, Protection(n_leading=1), stats="batch")
    >>> layer(torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).abs().tolist()[0]
    [1.0, 0.0]
    """

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        n_clusters: Annotated[int, Bounds(1)] = 8,
        n_components: Annotated[int, Bounds(0)] = 3,
        protect: Protection = LEADING,
        assign: Assignment = KMEANS,
        removal: Removal = PROJECT,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        seed: int = 0,
    ) -> None:
        if protect.n_leading >= width:
            raise ValueError(
                f"n_leading must be below width={width}, got {protect.n_leading}; lower n_leading"
            )
        if protect.labels and eval_stats == "batch":
            raise ValueError(
                "protect.labels=true cannot go with eval_stats=batch: evaluation would read its "
                "own labels; use eval_stats=frozen or refit"
            )
        self.protects = protect.n_directions() > 0
        super().__init__(
            width, n_clusters, n_components, assign, removal, stats, eval_stats, queue_rows, seed
        )
        self.protect, self.reads_labels = protect, protect.labels
        self.queue = RowQueue(queue_rows, width, has_labels=protect.labels)
        self.add_statistics(
            spared_mean_D=torch.zeros(width),
            spared_DJ=torch.zeros(width, protect.n_directions()),
            kept_J=torch.ones(protect.n_directions()),
            scale=torch.ones(()),
        )

    def estimate(
        self,
        rows_ND: Tensor,
        to_freeze: bool = False,
        n_own: int | None = None,
        labels_N: Tensor | None = None,
    ) -> ClusterPCAStats:
        """Protected directions, and the clusters of what remains."""
        return fit_protected_cluster_pca(
            rows_ND,
            self.n_clusters,
            self.n_components,
            self.protect,
            self.assign_frozen if to_freeze else self.assign,
            self.removal,
            labels_N=labels_N,
            **self.start_of(rows_ND, to_freeze),
            n_own=n_own,
        )

    def follow(self, rows_MD: Tensor, labels_M: Tensor | None) -> None:
        """Move the centroids that k-means starts from, of what remains."""
        if self.n_clusters > 1 and self.protects:
            spared = fit_spared(rows_MD, self.protect.n_leading, labels_M)
            rows_MD = without(rows_MD, spared)
        super().follow(rows_MD, labels_M)
