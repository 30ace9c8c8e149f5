"""Clusters chosen by silhouette, silhouette values, embeddings centred per cluster. N, D."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import class_ids, hashed_order
from isotrain.geometry.kmeans import kmeans

N_STARTS = 5  # one start missed the true k on 11 of 24 clouds of separated clusters, five on none
N_ITERATIONS = 100


class Clusters(NamedTuple):
    """The cluster 0..n_clusters−1 of each embedding; none is empty."""

    assignment_N: Tensor
    n_clusters: int


def choose_clusters(
    x_ND: Tensor, k_max: int = 15, threshold: float = 0.1, max_rows: int = 2000, seed: int = 0
) -> Clusters:
    """K-means with the k in 2..`k_max` of the best mean silhouette, or one cluster.

    One cluster if the best silhouette is below `threshold`. A sample of at most `max_rows`, drawn
    by hashing positions with `seed`, gives the silhouette and the start of k-means on all: the best
    of five runs. No gradient.

    Cai et al. 2021 (samples of 20,000 there).

    >>> x = torch.tensor([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> choose_clusters(x).n_clusters
    2
    """
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
        start = min(
            starts, key=lambda s: float((sample_MD - s.centroid_KD[s.assignment_N]).square().sum())
        )
        clusters = kmeans(x_ND, k, init=start.centroid_KD, n_iterations=N_ITERATIONS)
        cluster_M = clusters.assignment_N[sample_M]
        if 2 <= len(torch.unique(cluster_M)) < len(cluster_M):
            score = float(silhouette_values(sample_MD, cluster_M).mean())
            if score > best:
                best, best_N = score, clusters.assignment_N
    if best < threshold:
        best_N = torch.zeros_like(best_N)
    id_K, assignment_N = torch.unique(best_N, return_inverse=True)  # drops empty clusters
    return Clusters(assignment_N, len(id_K))


def centre_rows(x_ND: Tensor) -> Tensor:
    """Embeddings less their mean; one that is the mean, but for rounding, becomes exactly zero."""
    shifted_ND = x_ND - x_ND[:1]
    centred_ND = shifted_ND - shifted_ND.mean(dim=0)
    rounding = 8.0 * torch.finfo(x_ND.dtype).eps * x_ND.detach().abs().amax()
    return torch.where(centred_ND.abs().amax(dim=1, keepdim=True) > rounding, centred_ND, 0.0)


def adjusted_parts(
    x_ND: Tensor, adjust: str, k_max: int, threshold: float, max_rows: int, seed: int
) -> list[tuple[Tensor, Tensor]]:
    """Positions and embeddings: all (`none`), centred (`centre`), or per centred cluster.

    Options and errors as `choose_clusters`.
    """
    if adjust not in ("none", "centre", "cluster"):
        raise ValueError(f"adjust must be none, centre or cluster, got {adjust!r}")
    index_N = torch.arange(len(x_ND), device=x_ND.device)
    if adjust == "none":
        return [(index_N, x_ND)]
    if adjust == "centre":
        return [(index_N, centre_rows(x_ND))]
    clusters = choose_clusters(x_ND, k_max, threshold, max_rows, seed)
    positions = [index_N[clusters.assignment_N == k] for k in range(clusters.n_clusters)]
    return [(position_n, centre_rows(x_ND[position_n])) for position_n in positions]


def over_clusters(
    parts: Sequence[tuple[Tensor, Tensor]],
    measure: Callable[[Tensor, Tensor], tuple[Tensor, int] | None],
    needed: str,
) -> dict[str, Tensor]:
    """Unweighted means over clusters of value and baseline, their difference, and the counts.

    `measure` gives the value of a cluster and its number of groups, or None if the cluster lacks
    what is `needed`. The baseline is the mean cosine of all pairs.
    """
    values, baselines, n_groups = [], [], 0
    for position_n, x_nD in parts:
        if measurement := measure(position_n, x_nD):
            values.append(measurement[0])
            baselines.append(mean_pairwise_cosine(x_nD))
            n_groups += measurement[1]
    if not values:
        raise ValueError(
            f"none of {len(parts)} clusters has {needed}; measure more rows, or lower k_max"
        )
    value, baseline = torch.stack(values).mean(), torch.stack(baselines).mean()
    return {
        "value": value,
        "baseline": baseline,
        "adjusted": value - baseline,
        "n_groups": value.new_tensor(float(n_groups)),
        "n_clusters": value.new_tensor(float(len(parts))),
    }


BLOCK_ENTRIES = 1 << 22  # numbers in a block of distances, 32 MiB
NEAR = 1e-8  # squared distances below this share of the squared lengths are recomputed
MANY = 1 / 16  # share of near pairs above which the whole block is recomputed


def silhouette_values(x_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Silhouette `[N]` of each embedding, float64, in [−1, 1]; 1 = far from all other clusters.

    (b − a)/max(a, b), with a the mean Euclidean distance to the others of the own cluster and b
    the least mean distance to those of another one. A cluster of one, and an embedding that
    equals all others, has 0. Unchanged by rotation, translation, scale and order. O(N²·D), in
    blocks of 32 MiB whatever N is. No gradient.

    Rousseeuw 1987; agrees with sklearn.metrics.silhouette_samples.
    """
    n = len(x_ND)
    class_N = class_ids(labels_N.to(x_ND.device), n)
    count_C = torch.bincount(class_N)
    if len(count_C) == n:
        raise ValueError(
            f"silhouettes need 2 to N − 1 = {n - 1} clusters, got {n}: every row its own; "
            "measure more rows or join clusters"
        )
    x_ND = x_ND.detach().double()
    x_ND = x_ND - x_ND.mean(dim=0)
    x_ND = x_ND / x_ND.abs().amax().clamp_min(torch.finfo(x_ND.dtype).tiny)
    values = []
    size = max(1, BLOCK_ENTRIES // n)
    for first, class_B in zip(range(0, n, size), torch.split(class_N, size), strict=True):
        distance_NB = _distances(x_ND, first, len(class_B))
        sum_CB = distance_NB.new_zeros(len(count_C), len(class_B))
        sum_CB.index_add_(0, class_N, distance_NB)
        class_1B = class_B[None]
        within_B = sum_CB.gather(0, class_1B)[0] / (count_C[class_B] - 1).clamp_min(1)
        nearest_B = (sum_CB / count_C[:, None]).scatter(0, class_1B, torch.inf).amin(dim=0)
        largest_B = torch.maximum(within_B, nearest_B)
        defined_B = (largest_B > 0) & (count_C[class_B] > 1)
        value_B = (nearest_B - within_B) / torch.where(defined_B, largest_B, 1.0)
        values.append(torch.where(defined_B, value_B, 0.0))
    return torch.cat(values)


def _distances(x_ND: Tensor, first: int, size: int) -> Tensor:
    """Distances `[N, B]` of all centred embeddings to `size` of them: by products if not near."""
    square_N = x_ND.square().sum(dim=1)
    block_BD, square_B = x_ND[first : first + size], square_N[first : first + size]
    length_NB = square_N[:, None] + square_B
    distance_NB = torch.addmm(length_NB, x_ND, block_BD.T, alpha=-2.0)
    near_NB = distance_NB < NEAR * length_NB
    del length_NB
    if int(near_NB.sum()) > MANY * near_NB.numel():
        del distance_NB
        return torch.cdist(x_ND, block_BD, compute_mode="donot_use_mm_for_euclid_dist")
    distance_NB = distance_NB.clamp_min_(0.0).sqrt_()
    for pair_P2 in torch.split(near_NB.nonzero(), max(1, BLOCK_ENTRIES // (8 * x_ND.shape[1]))):
        i_P, j_P = pair_P2.unbind(dim=1)
        distance_NB[i_P, j_P] = (x_ND[i_P] - block_BD[j_P]).norm(dim=1)
    return distance_NB
