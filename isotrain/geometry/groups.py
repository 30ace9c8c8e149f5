"""Embeddings in groups: of a word, of a sentence. N embeddings, D width, G groups, S sets of n."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import hash_ids


class Groups(NamedTuple):
    """Group ids in ascending order, the number of each embedding's group, group sizes."""

    id_G: Tensor
    index_N: Tensor
    count_G: Tensor


def check_groups(x_ND: Tensor, groups_N: Tensor) -> Groups:
    """The groups of embeddings, named by any integers."""
    if groups_N.is_floating_point() or groups_N.is_complex() or groups_N.dtype == torch.bool:
        raise ValueError(
            f"groups are integers, got {groups_N.dtype}; number the words or sentences"
        )
    if groups_N.shape != x_ND.shape[:1]:
        raise ValueError(
            f"groups: one integer per embedding, shape ({len(x_ND)},), got {tuple(groups_N.shape)}"
        )
    return Groups(
        *torch.unique(groups_N.long().to(x_ND.device), return_inverse=True, return_counts=True)
    )


def large_groups(
    groups: Groups, min_count: int, fix: str = "lower min_count or give more rows per group"
) -> Tensor:
    """Mask `[G]` of the groups with at least `min_count` members; `fix` closes the error."""
    large_G = groups.count_G >= min_count
    if not bool(large_G.any()):
        g = int(groups.count_G.argmax())
        raise ValueError(
            f"no group has {min_count} rows: the largest is group {int(groups.id_G[g])} "
            f"with {int(groups.count_G[g])}; {fix}"
        )
    return large_G


def group_sums(x_ND: Tensor, groups: Groups) -> Tensor:
    """Sum `[G, D]` of each group. Differentiable."""
    zero_GD = x_ND.new_zeros(len(groups.count_G), x_ND.shape[1])
    return zero_GD.index_add(0, groups.index_N, x_ND)


def group_mean_cosine(x_ND: Tensor, groups_N: Tensor, min_count: int = 2) -> Tensor:
    """Mean cosine `[G]` over all pairs inside each group of at least `min_count` embeddings.

    (‖Σ u_i‖² − Σ ‖u_i‖²)/(n(n−1)) with u_i the unit vectors: exact, in O(N·D). Differentiable; a
    zero vector has cosine 0.
    """
    if min_count < 2:
        raise ValueError(f"a pair needs two rows: min_count must be at least 2, got {min_count}")
    groups = check_groups(x_ND, groups_N)
    large_G = large_groups(groups, min_count)
    unit_ND = unit_rows(x_ND)
    own_G = group_sums(unit_ND.square().sum(dim=1, keepdim=True), groups)[large_G, 0]
    count_G = groups.count_G[large_G]
    pairs_G = count_G.to(x_ND.dtype) * (count_G - 1)
    return (group_sums(unit_ND, groups)[large_G].square().sum(dim=1) - own_G) / pairs_G


def mean_cosine_between(x_ND: Tensor, groups_N: Tensor) -> Tensor:
    """Mean cosine over all pairs of different groups, in O(N·D). Differentiable."""
    groups = check_groups(x_ND, groups_N)
    if len(groups.id_G) < 2:
        raise ValueError("pairs of different groups need at least 2 groups, got 1; add another")
    sum_GD = group_sums(unit_rows(x_ND), groups)
    n_pairs = len(x_ND) ** 2 - int(groups.count_G.square().sum())
    return (sum_GD.sum(dim=0).square().sum() - sum_GD.square().sum()) / n_pairs


def hashed_order(n: int, seed: int, device: torch.device | None = None) -> Tensor:
    """The positions 0..n−1 in a pseudo-random order, the same on every machine and device."""
    stream = hash_ids(torch.tensor(seed)).to(device)
    return hash_ids(torch.arange(n, device=device) ^ stream).argsort()


def sample_groups(groups: Groups, chosen_G: Tensor, n: int, seed: int) -> Tensor:
    """Positions `[S, n]` of n distinct members of each chosen group (a mask), of n or more.

    Drawn by hashing positions: another order of the embeddings gives another sample.
    """
    order_N = hashed_order(len(groups.index_N), seed, groups.index_N.device)
    order_N = order_N[groups.index_N[order_N].argsort(stable=True)]
    start_S = (groups.count_G.cumsum(dim=0) - groups.count_G)[chosen_G]
    return order_N[start_S[:, None] + torch.arange(n, device=order_N.device)]


def first_direction_share(x_SnD: Tensor, center: bool = False) -> Tensor:
    """σ₁²/Σσ² `[S]` of each set of n embeddings; `center` subtracts the mean of each set first.

    The eigenvalues come from the smaller Gram side, n × n or D × D. Differentiable. A set with
    nothing to explain (all zero, or equal and centred) gives 1: one vector is enough.
    """
    if center:
        x_SnD = x_SnD - x_SnD.mean(dim=1, keepdim=True)
    largest_S = x_SnD.abs().amax(dim=(1, 2))
    x_SnD = x_SnD / torch.where(largest_S > 0, largest_S, 1.0)[:, None, None]
    gram = x_SnD @ x_SnD.mT if x_SnD.shape[1] <= x_SnD.shape[2] else x_SnD.mT @ x_SnD
    total_S = gram.diagonal(dim1=1, dim2=2).sum(dim=1)
    first_S = torch.linalg.eigvalsh(gram)[:, -1]
    return torch.where(total_S > 0, first_S / torch.where(total_S > 0, total_S, 1.0), 1.0)


def summary(value_G: Tensor, baseline: Tensor) -> dict[str, Tensor]:
    """Mean over groups, baseline, difference, number of groups, standard error of the mean.

    One group has no standard error: the key is left out.
    """
    value, n = value_G.mean(), len(value_G)
    found = {"value": value, "baseline": baseline, "adjusted": value - baseline}
    found["n_groups"] = value.new_tensor(float(n))
    if n > 1:
        found["standard_error"] = value_G.detach().std() / n**0.5
    return found
