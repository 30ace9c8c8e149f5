"""Cluster PCA fitted in one call, layers of its classes, and its slow reference."""

from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from isotrain.geometry.cluster_pca import (
    ClusterPCAStats,
    apply_cluster_pca,
    center_clusters,
    fit_cluster_pca,
)
from isotrain.geometry.kmeans import kmeans, nearest_centroid
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.protected_cluster_pca import ProtectedClusterPCA


def layer_with(
    width: int, *sizes: int, kind: type[ClusterPCA] = ClusterPCA, **options: Any
) -> ClusterPCA:
    """A layer of the class, or `ProtectedClusterPCA` where something is protected."""
    names = dict(zip(("n_clusters", "n_components"), sizes, strict=False))
    if {"n_leading", "protect_labels"} & options.keys():
        return ProtectedClusterPCA(width, **names, **{"n_leading": 0, **options})
    return kind(width, **names, **options)


def fit_with(
    x: Tensor,
    n_clusters: int,
    n_components: int,
    rho: float = 0.25,
    effective_rows: int = 0,
    exact: bool = False,
    **start: Any,
) -> ClusterPCAStats:
    """Clusters, means and directions of one cloud; `start` as in `kmeans`."""
    start = {"n_iterations": 3, **start}
    found = kmeans(x.detach(), n_clusters, **start)
    clusters = center_clusters(x, found, effective_rows=effective_rows)
    return fit_cluster_pca(clusters, n_components, rho, exact)


def apply_to(x: Tensor, stats: ClusterPCAStats) -> Tensor:
    """What `apply_cluster_pca` gives of embeddings in their nearest clusters."""
    return apply_cluster_pca(x, stats, nearest_centroid(x, stats.anchor_KD))


def by_scikit_learn(x: Tensor, assignment: Tensor, n_components: int, rho: float = 1.0) -> Tensor:
    """Rajaee and Pilehvar 2021, cluster by cluster in float64, with the rules that it lacks.

    A cluster of n rows loses rho·(n − 1) directions at most and keeps one, so that it is never
    zeroed; one of fewer than four rows, or of equal rows, takes the mean and the directions of all
    rows.
    """
    points, owner = x.double().numpy(), assignment.numpy()
    y = np.empty_like(points)
    for c in np.unique(owner):
        own_N = owner == c
        borrows = own_N.sum() < 4 or len(np.unique(points[own_N], axis=0)) < 2
        cloud = points if borrows else points[own_N]
        centred = cloud - cloud.mean(axis=0)
        rank = np.linalg.matrix_rank(centred)
        k = min(n_components, int(rho * (len(cloud) - 1) + 1e-9), rank - 1)
        v = PCA(k, svd_solver="full").fit(cloud).components_ if k > 0 else centred[:0]
        z = points[own_N] - cloud.mean(axis=0)
        y[own_N] = z - z @ v.T @ v
    return torch.from_numpy(y)
