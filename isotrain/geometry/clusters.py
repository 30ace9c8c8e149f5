"""Clusters chosen by silhouette, and rows centred inside them. N rows, D dimensions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.groups import hashed_order
from isotrain.geometry.kmeans import KMeans, kmeans
from isotrain.geometry.silhouette import silhouette_values

N_STARTS = 5  # one start missed the true k on 11 of 24 clouds of parted clusters, five on none
N_ITERATIONS = 100


class Clusters(NamedTuple):
    """The cluster 0..n_clusters−1 of each row; none is empty."""

    assignment_N: Tensor
    n_clusters: int


class Part(NamedTuple):
    """Positions of the rows of a cluster and those rows, centred."""

    position_n: Tensor
    x_nD: Tensor


def choose_clusters(
    x_ND: Tensor, k_max: int = 15, threshold: float = 0.1, max_rows: int = 2000, seed: int = 0
) -> Clusters:
    """K-means of all rows with the k in 2..`k_max` of the best mean silhouette, or one cluster.

    One cluster if the best silhouette is below `threshold`. At most `max_rows` rows, drawn by
    hashing their positions with `seed`, give the silhouette and the start of k-means on all rows:
    the best of five runs on them. Another order of rows gives other starts. No gradient.

    Raises:
        ValueError: `k_max` below 1 or `max_rows` below 3.

    Cai et al. 2021 (20,000 sampled rows there).

    >>> x = torch.tensor([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> choose_clusters(x).n_clusters
    2
    """
    if k_max < 1 or max_rows < 3:
        raise ValueError(
            f"k_max must be at least 1 and max_rows at least 3, got {k_max} and {max_rows}"
        )
    x_ND = centre_rows(x_ND.detach())
    x_ND = x_ND / x_ND.abs().amax().clamp_min(torch.finfo(x_ND.dtype).tiny)
    sample_M = hashed_order(len(x_ND), seed, x_ND.device)[:max_rows]
    sample_MD = x_ND[sample_M]
    generator = torch.Generator().manual_seed(seed)
    best, best_N = -1.0, torch.zeros_like(x_ND[:, 0], dtype=torch.int64)
    for k in range(2, min(k_max, len(sample_M) - 1) + 1):
        starts = (
            kmeans(sample_MD, k, generator=generator, n_iterations=N_ITERATIONS)
            for _ in range(N_STARTS)
        )
        start = min(starts, key=lambda found: _inertia(sample_MD, found))
        found = kmeans(x_ND, k, init=start.centroid_KD, n_iterations=N_ITERATIONS)
        found_M = found.assignment_N[sample_M]
        if 2 <= len(torch.unique(found_M)) < len(found_M):
            score = float(silhouette_values(sample_MD, found_M).mean())
            if score > best:
                best, best_N = score, found.assignment_N
    if best < threshold:
        best_N = torch.zeros_like(best_N)
    id_K, assignment_N = torch.unique(best_N, return_inverse=True)  # drops empty clusters
    return Clusters(assignment_N, len(id_K))


def _inertia(x_ND: Tensor, found: KMeans) -> float:
    return float((x_ND - found.centroid_KD[found.assignment_N]).square().sum())


def centre_rows(x_ND: Tensor) -> Tensor:
    """Rows less their mean; a row that is the mean, but for rounding, becomes exactly zero.

    >>> centre_rows(torch.full((3, 1), 0.1)).tolist()
    [[0.0], [0.0], [0.0]]
    """
    shifted_ND = x_ND - x_ND[:1]
    centred_ND = shifted_ND - shifted_ND.mean(dim=0)
    rounding = 8.0 * torch.finfo(x_ND.dtype).eps * x_ND.detach().abs().amax()
    return torch.where(centred_ND.abs().amax(dim=1, keepdim=True) > rounding, centred_ND, 0.0)


def adjusted_parts(
    x_ND: Tensor, adjust: str, k_max: int, threshold: float, max_rows: int, seed: int
) -> list[Part]:
    """The cloud as it is (`none`), centred (`centre`), or centred inside each cluster (`cluster`).

    The options are those of `choose_clusters`.

    Raises:
        ValueError: another `adjust`, or what `choose_clusters` raises.

    >>> [part.x_nD.tolist() for part in adjusted_parts(torch.eye(2), "centre", 15, 0.1, 2000, 0)]
    [[[0.5, -0.5], [-0.5, 0.5]]]
    """
    if adjust not in ("none", "centre", "cluster"):
        raise ValueError(f"adjust must be none, centre or cluster, got {adjust!r}")
    everything_N = torch.arange(len(x_ND), device=x_ND.device)
    if adjust == "none":
        return [Part(everything_N, x_ND)]
    if adjust == "centre":
        return [Part(everything_N, centre_rows(x_ND))]
    clusters = choose_clusters(x_ND, k_max, threshold, max_rows, seed)
    positions = [everything_N[clusters.assignment_N == k] for k in range(clusters.n_clusters)]
    return [Part(position_n, centre_rows(x_ND[position_n])) for position_n in positions]


def over_clusters(
    values: list[Tensor], baselines: list[Tensor], n_groups: int, n_clusters: int
) -> dict[str, Tensor]:
    """Unweighted means over clusters of value and baseline, their difference, and the counts.

    >>> found = over_clusters([torch.tensor(0.5)], [torch.tensor(0.25)], 4, 2)
    >>> found["adjusted"].item(), found["n_clusters"].item()
    (0.25, 2.0)
    """
    value, baseline = torch.stack(values).mean(), torch.stack(baselines).mean()
    return {
        "value": value,
        "baseline": baseline,
        "adjusted": value - baseline,
        "n_groups": value.new_tensor(float(n_groups)),
        "n_clusters": value.new_tensor(float(n_clusters)),
    }
