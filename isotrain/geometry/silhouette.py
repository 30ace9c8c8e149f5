"""Silhouettes. N rows, D dimensions, C clusters, B rows of a block, P pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.scatter import class_ids

BLOCK_ENTRIES = 1 << 22  # numbers in a block of distances, 32 MiB
NEAR = 1e-8  # squared distances below this share of the squared lengths are taken anew
MANY = 1 / 16  # share of near pairs in a block above which all of it is


def silhouette_values(x_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Silhouette `[N]` of each row, float64, in [−1, 1]; 1 = far from every other cluster.

    (b − a)/max(a, b), with a the mean Euclidean distance to the other rows of the own cluster
    and b the least mean distance to the rows of another one. A cluster of one row, and a row
    that equals all others, has 0. Unchanged by rotation, translation, scale and row order.
    O(N²·D), in blocks of 32 MiB whatever N is. No gradient.

    Raises:
        ValueError: not one whole number per row, or not 2 to N − 1 distinct ones.

    Rousseeuw 1987; agrees with sklearn.metrics.silhouette_samples.

    >>> x = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> round(silhouette_values(x, torch.tensor([0, 0, 1, 1]))[0].item(), 6)  # 1 − 1/9.5
    0.894737
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
    for first, own_B in zip(range(0, n, size), torch.split(class_N, size), strict=True):
        distance_NB = _distances(x_ND, first, len(own_B))
        sum_CB = distance_NB.new_zeros(len(count_C), len(own_B))
        sum_CB.index_add_(0, class_N, distance_NB)
        own_1B = own_B[None]
        within_B = sum_CB.gather(0, own_1B)[0] / (count_C[own_B] - 1).clamp_min(1)
        nearest_B = (sum_CB / count_C[:, None]).scatter(0, own_1B, torch.inf).amin(dim=0)
        largest_B = torch.maximum(within_B, nearest_B)
        defined_B = (largest_B > 0) & (count_C[own_B] > 1)
        value_B = (nearest_B - within_B) / torch.where(defined_B, largest_B, 1.0)
        values.append(torch.where(defined_B, value_B, 0.0))
    return torch.cat(values)


def _distances(x_ND: Tensor, first: int, size: int) -> Tensor:
    """Distances `[N, B]` of all centred rows to `size` of them, by products.

    ‖x‖² + ‖y‖² − 2x·y loses the digits of a near pair, so those are computed from x − y: by
    gathering their rows, a few MiB at a time, or where many are near, with all the others.
    """
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
