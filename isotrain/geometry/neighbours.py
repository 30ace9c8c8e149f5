"""Exact nearest neighbours by products. Q queries, B of a block, C candidates, K neighbours."""

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_BYTES = 1 << 23  # of the products of a block of queries
GATHER_BYTES = 1 << 22  # of candidates gathered at a time: they stay in the cache


class Neighbours(NamedTuple):
    """Distances, ascending, and indices of the nearest neighbours of each query."""

    distance_QK: Tensor
    index_QK: Tensor


def nearest_neighbours(x_ND: Tensor, n_neighbors: int, query_Q: Tensor | None = None) -> Neighbours:
    """The `n_neighbors` embeddings nearest to each of index `query_Q` (all by default), Euclidean.

    The query is left out by its index, so a duplicate of it is a neighbour at distance 0. Exact to
    float64 rounding; at equal distance the choice is free. No gradient.

    Candidates are chosen by the products ‖x_i‖² − 2 x_q·x_i of centred embeddings in float32,
    shrunk by a bound on their rounding; their distances are then computed from differences in
    float64. A query whose last neighbour is not within that bound (in clusters far tighter than
    the cloud) is measured against all by differences. Holds at most four copies of the cloud in
    float64, and blocks of 8 MB.

    >>> x = torch.tensor([[0.0], [1.0], [3.0], [3.0]], dtype=torch.float64)
    >>> nearest_neighbours(x, 2).distance_QK.tolist()
    [[1.0, 3.0], [1.0, 2.0], [0.0, 2.0], [0.0, 2.0]]
    """
    n = len(x_ND)
    if not 1 <= n_neighbors < n:
        raise ValueError(
            f"n_neighbors must be in [1, N − 1] = [1, {n - 1}], got {n_neighbors}; "
            "lower it or give more rows"
        )
    with torch.no_grad(), torch.autocast(x_ND.device.type, enabled=False):
        return _search(x_ND.detach().double(), n_neighbors, query_Q)


def _search(x_ND: Tensor, k: int, query_Q: Tensor | None) -> Neighbours:
    n, d = x_ND.shape
    if query_Q is None:
        query_Q = torch.arange(n, device=x_ND.device)
    scale = _power_of_two(x_ND)
    x_ND = x_ND / scale
    centred_ND = x_ND - x_ND.mean(dim=0)
    spread = _power_of_two(centred_ND)
    x_ND.div_(spread)
    centred_ND.div_(spread)
    size = max(1, BLOCK_BYTES // (n * 4))
    rough_ND = centred_ND.float()
    if not _rounds_once(rough_ND, min(size, len(query_Q), 256)):
        rough_ND, size = centred_ND, max(1, size // 2)
    precision = torch.finfo(rough_ND.dtype)
    # (D + 16) unit roundoffs bound input, product and sum; 2|x·y| ≤ ‖x‖² + ‖y‖².
    shrunk_N = torch.linalg.vector_norm(centred_ND, dim=1).square() * (
        1.0 - (d + 16) * precision.eps / 2.0
    )
    underflow = 4.0 * d * precision.tiny
    norm_N = shrunk_N.to(rough_ND)
    n_candidates = min(n - 1, k + 8)
    blocks = []
    chunk = max(1, GATHER_BYTES // (n_candidates * d * 8))
    for start in range(0, len(query_Q), size):
        query_B = query_Q[start : start + size]
        bound_BN = torch.addmm(norm_N, rough_ND[query_B], rough_ND.T, alpha=-2.0)
        bound_BN.scatter_(1, query_B[:, None], torch.inf)
        bound_BC, index_BC = bound_BN.topk(n_candidates, largest=False)
        parts = []
        for s in range(0, len(query_B), chunk):
            index_FC = index_BC[s : s + chunk]
            candidate_FCD = x_ND.index_select(0, index_FC.flatten()).view(-1, n_candidates, d)
            parts.append(_by_differences(x_ND[query_B[s : s + chunk], None], candidate_FCD)[:, 0])
        distance_BC = torch.cat(parts)
        distance_BK, order_BK = distance_BC.topk(k, largest=False)
        index_BK = index_BC.gather(1, order_BK)
        if n_candidates < n - 1:
            bound_B = bound_BC[:, -1].double() + shrunk_N[query_B] - underflow
            last_B = distance_BK[:, -1]
            open_O = ((last_B > 0) & (last_B.square() > bound_B)).nonzero().flatten()
            if len(open_O) > 0:
                distance_ON = _by_differences(x_ND[query_B[open_O]], x_ND)
                distance_ON.scatter_(1, query_B[open_O, None], torch.inf)
                distance_BK[open_O], index_BK[open_O] = distance_ON.topk(k, largest=False)
        blocks.append((distance_BK * spread * scale, index_BK))
    distances, indices = zip(*blocks, strict=True)
    return Neighbours(torch.cat(distances), torch.cat(indices))


def _rounds_once(like_ND: Tensor, size: int) -> bool:
    """Whether float32 products of this shape round no more coarsely than float32, measured."""
    # TF32 and bfloat16 have several switches, and are used for some shapes only. With one column
    # of thirds an entry is one product: its relative error is eps/2 in float32, 1e-4 in those.
    probe_ND = torch.zeros_like(like_ND)
    probe_ND[:, 0] = 1.0 / 3.0
    exact = probe_ND[0, 0].double().square()
    product_BN = torch.addmm(
        probe_ND.new_zeros(len(probe_ND)), probe_ND[:size], probe_ND.T, alpha=-2.0
    )
    error = torch.stack(torch.aminmax(product_BN)).double() / (-2.0 * exact) - 1.0
    return bool(error.abs().max() <= torch.finfo(torch.float32).eps)


def _power_of_two(x: Tensor) -> Tensor:
    """About the largest entry: dividing by it rounds nothing and keeps squares in range."""
    largest = torch.stack(torch.aminmax(x)).abs().amax()
    return torch.exp2(torch.frexp(largest)[1].to(x) - 1.0)


def _by_differences(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
