"""K-means of directions: unit rows, unit centroids. N rows, D dimensions, K clusters."""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.kmeans import KMeans, cluster_means, kmeans, nearest_centroid


@torch.no_grad()
def spherical_kmeans(
    x: Tensor,
    n_clusters: int,
    *,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    n_iterations: int = 10,
) -> KMeans:
    """Clusters of the rows of `x [N, D]` that locally maximise Σ cos(x_i, c_{a(i)}), ‖c‖ = 1.

    The length of a row has no influence. Starts from the directions of `init [K, D]` if given,
    else by k-means++ on the unit rows, drawn from `generator`; stops when no row changes cluster.
    The returned assignment belongs to the returned centroids. A zero row has cosine 0 with all
    centroids, goes to cluster 0 and is never a centroid. A cluster that is empty, or
    whose unit rows sum to zero, keeps its centroid; that is zero only if all rows are zero, or
    cancel under K = 1. No gradient.

    Raises:
        ValueError: no rows, not `[N, D]`, `n_clusters < 1`, an `init` of another shape, or
            neither `generator` nor `init` for K > 1 (the global random state is never read).

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [9.0, 0.1], [0.1, 0.5]])
    >>> spherical_kmeans(x, 2, init=x[:2]).assignment_N.tolist()
    [0, 1, 0, 1]
    """
    if x.ndim != 2 or x.numel() == 0:
        raise ValueError(
            f"spherical_kmeans needs rows [N, D] with N > 0 and D > 0, got shape {tuple(x.shape)}; "
            "flatten the rows, and leave out empty batches"
        )
    unit_ND = unit_rows(x)
    directed_ND = unit_ND[unit_ND.any(dim=1)]
    start = kmeans(  # no iterations: the checks and the start
        directed_ND if len(directed_ND) else unit_ND,
        n_clusters,
        generator=generator,
        init=init,
        n_iterations=0,
    )
    centroid_KD = unit_rows(start.centroid_KD)
    assignment_N = _nearest(unit_ND, centroid_KD)
    for _ in range(n_iterations):
        mean_KD, _ = cluster_means(unit_ND, assignment_N, n_clusters)
        centroid_KD = torch.where(mean_KD.any(dim=1, keepdim=True), unit_rows(mean_KD), centroid_KD)
        previous_N, assignment_N = assignment_N, _nearest(unit_ND, centroid_KD)
        if torch.equal(previous_N, assignment_N):
            break
    count_K = torch.nn.functional.one_hot(assignment_N, n_clusters).sum(dim=0)
    return KMeans(centroid_KD, assignment_N, count_K)


def nearest_direction(x_ND: Tensor, centroid_KD: Tensor) -> Tensor:
    """Index `[N]` of the centroid with the largest cosine to each row; a zero row goes to 0.

    Found as the nearest unit vector, ‖u − c‖² = 2 − 2 cos, which in a narrow cone keeps digits that
    the cosine loses. The lower index wins a tie between equal directions. A zero centroid has no
    direction; it stands for a cosine of ½ with every row.

    >>> nearest_direction(torch.tensor([[9.0, 1.0], [0.0, 0.2]]), torch.eye(2)).tolist()
    [0, 1]
    """
    return _nearest(unit_rows(x_ND), unit_rows(centroid_KD))


def _nearest(unit_ND: Tensor, centroid_KD: Tensor) -> Tensor:
    return nearest_centroid(unit_ND, centroid_KD) * unit_ND.any(dim=1)
