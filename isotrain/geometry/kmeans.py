"""Lloyd's k-means by matrix products; means of clusters. N embeddings, D dimensions, K clusters."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 256  # embeddings whose differences are held at once: they stay in cache


class KMeans(NamedTuple):
    """Centroids, the nearest centroid of each embedding, and the sizes of the clusters."""

    centroid_KD: Tensor
    assignment_N: Tensor
    count_K: Tensor


@torch.no_grad()
def kmeans(
    x: Tensor,
    n_clusters: int,
    *,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    n_iterations: int = 10,
) -> KMeans:
    """Clusters of `x [N, D]` that locally minimise Σ ‖x_i − c_{a(i)}‖².

    Starts from `init [K, D]` if given, else by k-means++ drawn from `generator`; stops when no
    embedding changes cluster. The returned assignment belongs to the returned centroids. An empty
    cluster keeps its centroid, and N < K leaves K − N clusters empty. No gradient.

    Raises:
        ValueError: an `init` of another shape, or neither `generator` nor `init` for K > 1 (the
            global random state is never read).

    Lloyd 1982; Arthur and Vassilvitskii 2007 for the start, in its greedy form.

    >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> kmeans(x, 2, generator=torch.Generator().manual_seed(0)).count_K.tolist()
    [2, 2]
    """
    if init is not None and init.shape != (n_clusters, x.shape[1]):  # one row would be broadcast
        raise ValueError(f"init must be [{n_clusters}, {x.shape[1]}], got {list(init.shape)}")
    if generator is None and init is None and n_clusters > 1:
        raise ValueError("kmeans draws its start: pass generator=torch.Generator() or init=")
    # Distances are compared as ‖c‖² − 2x·c, which loses digits far from the origin.
    offset_D = x.mean(dim=0)
    centred_ND = x - offset_D
    if n_clusters == 1:
        centroid_KD = torch.zeros_like(centred_ND[:1])
    elif init is not None:
        centroid_KD = init - offset_D
    else:
        centroid_KD = _plus_plus(centred_ND, centred_ND[:0], n_clusters, generator)
    assignment_N = _nearest(centred_ND, centroid_KD)
    for _ in range(n_iterations if n_clusters > 1 else 0):
        mean_KD, count_K = cluster_means(centred_ND, assignment_N, n_clusters)
        centroid_KD = torch.where(count_K[:, None] > 0, mean_KD, centroid_KD)
        previous_N, assignment_N = assignment_N, _nearest(centred_ND, centroid_KD)
        if torch.equal(previous_N, assignment_N):
            break
    count_K = torch.nn.functional.one_hot(assignment_N, n_clusters).sum(dim=0)
    return KMeans(centroid_KD + offset_D, assignment_N, count_K)


def reseed_empty(x_ND: Tensor, clusters: KMeans, generator: torch.Generator) -> Tensor:
    """Centroids `[K, D]` with those of empty clusters drawn anew, by greedy k-means++.

    A cluster whose embeddings have moved away would stay empty for good under a warm start.
    """
    centroid_KD, empty_K = clusters.centroid_KD.clone(), clusters.count_K == 0
    if n_empty := int(empty_K.sum()):
        centroid_KD[empty_K] = _plus_plus(x_ND, centroid_KD[~empty_K], n_empty, generator)
    return centroid_KD


def nearest_centroid(x_ND: Tensor, centroid_KD: Tensor) -> Tensor:
    """Index `[N]` of the centroid closest to each embedding; the lower index wins a tie."""
    offset_D = centroid_KD.mean(dim=0)
    equal_KK = (centroid_KD[:, None] == centroid_KD[None]).all(dim=-1)
    first_K = equal_KK.int().argmax(dim=1)  # BLAS rounds equal columns differently
    return first_K[_nearest(x_ND.detach() - offset_D, centroid_KD - offset_D)]


def cluster_means(x_ND: Tensor, assignment_N: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Mean `[K, D]`, with a gradient, and size `[K]` of each cluster; of an empty one, zeros."""
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    count_K = member_NK.sum(dim=0)
    return (member_NK.T @ x_ND) / count_K.clamp_min(1.0)[:, None], count_K


def straight_through(
    x_ND: Tensor, n_new: int | None, assignment_N: Tensor | None = None, n_clusters: int = 1
) -> Tensor:
    """The same embeddings, whose statistics have the gradient of those of the last `n_new`.

    The others are constants of a queue that will follow the batch. Each embedding moves with the
    mean of the batch in its cluster, and those of the batch about that mean n_c/b_c times as much
    as they do (n_c members of the cluster, b_c of them of the batch). So the mean of a cluster
    moves by 1/b_c with each of its b_c, and a covariance C by 2·(x − m)·dx/b_c, m the mean of the
    b_c. A cluster without a member of the batch does not move.

    >>> x = torch.tensor([[0.0], [0.0], [2.0], [4.0]])
    >>> own = torch.tensor([[2.0], [4.0]], requires_grad=True)
    >>> straight_through(torch.cat([x[:2], own]), 2).mean().backward()
    >>> own.grad.tolist()
    [[0.5], [0.5]]
    """
    n = len(x_ND)
    if n_new is None or n_new == n or not x_ND.requires_grad:
        return x_ND
    if assignment_N is None:
        assignment_N = torch.zeros(n, dtype=torch.int64, device=x_ND.device)
    # Sums over embeddings by products: the backward of an index is many times slower.
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    assignment_B, batch_BD, member_BK = (x[n - n_new :] for x in (assignment_N, x_ND, member_NK))
    shift_BD = batch_BD - batch_BD.detach()  # zeros, with the gradient of the batch
    shift_KD, count_K = cluster_means(shift_BD, assignment_B, n_clusters)
    weight_K = member_NK.sum(dim=0) / count_K.clamp_min(1.0)
    deviation_BD = weight_K[assignment_B, None] * (shift_BD - member_BK @ shift_KD)
    deviation_ND = torch.cat([deviation_BD.new_zeros(n - n_new, x_ND.shape[1]), deviation_BD])
    return x_ND.detach() + member_NK @ shift_KD + deviation_ND


def _nearest(x_ND: Tensor, centroid_KD: Tensor) -> Tensor:
    distance_NK = centroid_KD.square().sum(dim=1) - 2.0 * (x_ND @ centroid_KD.T)
    return distance_NK.argmin(dim=1)


def _squared_distances(x_ND: Tensor, centroid_D: Tensor) -> Tensor:
    blocks = torch.split(x_ND, BLOCK)
    return torch.cat([(x_BD - centroid_D).square().sum(dim=1) for x_BD in blocks])


def _plus_plus(
    x_ND: Tensor, centroid_KD: Tensor, n_more: int, generator: torch.Generator | None
) -> Tensor:
    """`n_more` further centroids by greedy k-means++: of a few candidates the best, in turn."""
    n = len(x_ND)
    n_candidates = 2 + int(math.log(max(1, len(centroid_KD) + n_more)))
    centroids = list(centroid_KD)
    square_N, distance_N = x_ND.square().sum(dim=1), x_ND.new_full((n,), torch.inf)
    for centroid_D in centroids:
        distance_N = torch.minimum(distance_N, _squared_distances(x_ND, centroid_D))
    for _ in range(n_more):
        # Drawn on the CPU in float64: a generator lives on one device, and clouds do not.
        weight_N = distance_N.cpu().double()
        if not centroids or not bool(weight_N.sum() > 0):  # all at distance 0
            weight_N = torch.ones(n, dtype=torch.float64)
        index_C = torch.multinomial(weight_N, n_candidates, replacement=True, generator=generator)
        candidate_CD = x_ND[index_C.to(x_ND.device)]
        distance_CN = (
            square_N + candidate_CD.square().sum(dim=1)[:, None] - 2.0 * candidate_CD @ x_ND.T
        )
        best = int(torch.minimum(distance_CN, distance_N).sum(dim=1).argmin())
        centroids.append(candidate_CD[best])
        # Products choose; the distance kept is exact, so that a duplicate is never drawn.
        distance_N = torch.minimum(distance_N, _squared_distances(x_ND, candidate_CD[best]))
    return torch.stack(centroids[len(centroid_KD) :])
