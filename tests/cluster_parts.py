"""Cluster PCA of flat options: which of its parts an option belongs to; and its slow reference.

`n_clipped` and `protect=True` ask for protected directions, `keep_scale` for the scale.
"""

from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from isotrain.geometry.assignment import Anchors, Assignment, fit_anchors
from isotrain.geometry.cluster_pca import ClusterPCAStats, fit_cluster_pca
from isotrain.geometry.cluster_removal import Removal
from isotrain.geometry.protected import Protection
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.protected_cluster_pca import ProtectedClusterPCA

PROTECTS = {"n_clipped": "n_leading", "protect": "labels", "keep_scale": "scale"}
RENAMED = {"assign": "method", "removal": "mode"}


def taken(options: dict[str, Any], part: Any) -> dict[str, Any]:
    """Those options that a part has, out of the others."""
    return {name: options.pop(name) for name in list(options) if name in signature(part).parameters}


def parts_of(options: dict[str, Any]) -> dict[str, Any]:
    """`assign`, `removal` and, if asked for, `protect`; what is left are other options."""
    protects = {PROTECTS[name]: options.pop(name) for name in PROTECTS if name in options}
    options |= {new: options.pop(old) for old, new in RENAMED.items() if old in options}
    level = {"level": options["level"]} if "level" in options else {}
    if options.get("mode") != "clip" and options.get("centre") != "shrink":
        options.pop("level", None)  # it is that of protected directions
    parts = {
        "assign": Assignment(**taken(options, Assignment)),
        "removal": Removal(**taken(options, Removal)),
    }
    return parts | ({"protect": Protection(**protects, **level)} if any(protects.values()) else {})


def layer_with(width: int, *sizes: int, **options: Any) -> ClusterPCA:
    """`ClusterPCA`, or `ProtectedClusterPCA` where something is protected."""
    parts = parts_of(options)
    made = ProtectedClusterPCA if "protect" in parts else ClusterPCA
    names = dict(zip(("n_clusters", "n_components"), sizes, strict=False))
    return made(width, **names, **parts, **options)


def fit_with(x: Tensor, n_clusters: int, n_components: int, **options: Any) -> ClusterPCAStats:
    """`fit_cluster_pca`, with protection where it is asked for or there are labels."""
    options = {"protect": options.get("labels_N") is not None, **options}
    return fit_cluster_pca(x, n_clusters, n_components, **parts_of(options), **options)


def anchors_with(x: Tensor, n_clusters: int, method: str, **options: Any) -> tuple[Anchors, Tensor]:
    """`fit_anchors`, with ten rounds and softness 1 unless they are given."""
    own = {"softness": 1.0, "n_iterations": 10} | taken(options, Assignment)
    return fit_anchors(x, n_clusters, Assignment(method, **own), **options)


def by_scikit_learn(
    x: Tensor, assignment: Tensor, n_components: int, rho: float = 1.0, min_rows: int = 1
) -> Tensor:
    """Rajaee and Pilehvar 2021, cluster by cluster in float64, with the rules that it lacks.

    A cluster of n rows loses rho·(n − 1) directions at most and keeps one, so that it is never
    zeroed; one of fewer than `min_rows` rows, or of equal rows, takes the mean and the directions
    of all rows.
    """
    points, owner = x.double().numpy(), assignment.numpy()
    y = np.empty_like(points)
    for c in np.unique(owner):
        own_N = owner == c
        borrows = own_N.sum() < min_rows or len(np.unique(points[own_N], axis=0)) < 2
        cloud = points if borrows else points[own_N]
        centred = cloud - cloud.mean(axis=0)
        rank = np.linalg.matrix_rank(centred)
        k = min(n_components, int(rho * (len(cloud) - 1) + 1e-9), rank - 1)
        v = PCA(k, svd_solver="full").fit(cloud).components_ if k > 0 else centred[:0]
        z = points[own_N] - cloud.mean(axis=0)
        y[own_N] = z - z @ v.T @ v
    return torch.from_numpy(y)
