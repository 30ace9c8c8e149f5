"""Embeddings in groups: words, sentences, classes. N embeddings, D width, G groups, C classes."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import hash_ids

N_SLICES = 5  # classes that scores are cut into


class Groups(NamedTuple):
    """Group ids in ascending order, the number of each embedding's group, group sizes."""

    id_G: Tensor
    index_N: Tensor
    count_G: Tensor


def check_groups(x_ND: Tensor, groups_N: Tensor) -> Groups:
    """The groups of embeddings, named by any integers."""
    if groups_N.is_floating_point() or groups_N.shape != x_ND.shape[:1]:
        raise ValueError(
            f"groups are integers, one per embedding, shape ({len(x_ND)},); got {groups_N.dtype} "
            f"of shape {tuple(groups_N.shape)}"
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
    groups = check_groups(x_ND, groups_N)
    large_G = large_groups(groups, min_count)
    unit_ND = unit_rows(x_ND)
    diagonal_G = group_sums(unit_ND.square().sum(dim=1, keepdim=True), groups)[large_G, 0]
    count_G = groups.count_G[large_G]
    pairs_G = count_G.to(x_ND.dtype) * (count_G - 1)
    return (group_sums(unit_ND, groups)[large_G].square().sum(dim=1) - diagonal_G) / pairs_G


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


def sample_groups(groups: Groups, mask_G: Tensor, n: int, seed: int) -> Tensor:
    """Positions `[S, n]` of n distinct members of each chosen group (a mask), of n or more.

    Drawn by hashing positions: another order of the embeddings gives another sample.
    """
    order_N = hashed_order(len(groups.index_N), seed, groups.index_N.device)
    order_N = order_N[groups.index_N[order_N].argsort(stable=True)]
    start_S = (groups.count_G.cumsum(dim=0) - groups.count_G)[mask_G]
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
    values = {"value": value, "baseline": baseline, "adjusted": value - baseline}
    values["n_groups"] = value.new_tensor(float(n))
    if n > 1:
        values["standard_error"] = value_G.detach().std() / n**0.5
    return values


def class_ids(labels_N: Tensor, n_labels: int) -> Tensor:
    """Labels as class numbers 0…C−1 `[N]` int64, in the order of the labels."""
    if labels_N.shape != (n_labels,):
        raise ValueError(
            f"labels must be [N] = [{n_labels}], one class number per embedding, "
            f"got shape {tuple(labels_N.shape)}"
        )
    if labels_N.is_floating_point() and len(fractional := labels_N[labels_N % 1 != 0]):
        raise ValueError(
            f"labels must be whole class numbers, got {fractional[0].item()}; slice a score into "
            "classes first, e.g. by torch.bucketize at its quantiles"
        )
    value_C, class_N = torch.unique(labels_N, return_inverse=True)
    if len(value_C) < 2:
        raise ValueError(
            f"at least two classes are needed, got {len(value_C)} in {n_labels} rows; "
            "measure rows of several classes together"
        )
    return class_N


def label_classes(labels_N: Tensor) -> Tensor:
    """Class numbers 0…C−1 `[N]` of labels: themselves, or of scores the slice at their quantiles.

    Labels of a floating type are scores, cut into five slices of about equal size.
    """
    if labels_N.is_floating_point():
        share_S = torch.arange(1, N_SLICES, device=labels_N.device, dtype=labels_N.dtype) / N_SLICES
        labels_N = torch.bucketize(labels_N.contiguous(), torch.quantile(labels_N, share_S))
    return torch.unique(labels_N, return_inverse=True)[1]


def stratified_folds(
    class_N: Tensor, n_folds: int, seed: int = 0, example_N: Tensor | None = None
) -> Tensor:
    """Fold 0…F−1 of each embedding `[N]`, stratified by class.

    Members of a class follow a hash of (seed, position), and classes go in their order. The sizes
    of folds differ by at most one, in each class and in all. With `example_N`, the number of the
    example that each embedding is of, all embeddings of an example lie in one fold, and
    this holds for the examples; those of an example share its class.
    """
    if example_N is not None and len(example_E := torch.unique(example_N)) < len(class_N):
        position_N = torch.searchsorted(example_E, example_N)
        class_E = class_N.new_empty(len(example_E))
        class_E[position_N] = class_N
        return stratified_folds(class_E, n_folds, seed)[position_N]
    count_C = torch.bincount(class_N)
    if n_folds < 2 or n_folds > int(count_C.min()):
        raise ValueError(
            f"n_folds must be from 2 to the rows of the smallest class, {int(count_C.min())} here, "
            f"got {n_folds}; lower n_folds, or leave out or merge rare classes"
        )
    order_N = hashed_order(len(class_N), seed, class_N.device)
    order_N = order_N[class_N[order_N].argsort(stable=True)]
    fold_N = torch.empty_like(class_N)
    fold_N[order_N] = torch.arange(len(class_N), device=class_N.device) % n_folds
    return fold_N


class ClassScatter(NamedTuple):
    """Scatter by class: S_B = BᵀB between, tr S_W within, tr S_T = tr S_B + tr S_W."""

    between_CD: Tensor  # B: √n_c · (m_c − m)
    between: Tensor  # tr S_B
    within: Tensor  # tr S_W
    centred_ND: Tensor  # the embeddings minus their mean


def class_scatter(x_ND: Tensor, class_N: Tensor) -> ClassScatter:
    """Scatter about the class means, and of these about the mean of all. Differentiable.

    What is within rounding of zero is zero: the between part of classes with equal means, the
    within part of classes of equal embeddings.
    """
    count_C = torch.bincount(class_N).to(x_ND.dtype)
    centred_ND = x_ND - x_ND.mean(dim=0)
    centred_ND = centred_ND - centred_ND.mean(dim=0)  # the first mean was itself rounded
    sum_CD = centred_ND.new_zeros(len(count_C), x_ND.shape[1]).index_add(0, class_N, centred_ND)
    mean_CD = sum_CD / count_C[:, None]
    within_ND = centred_ND - mean_CD[class_N]
    rounding = 8.0 * torch.finfo(x_ND.dtype).eps * x_ND.detach().abs().amax()
    mean_CD = mean_CD * (mean_CD.detach().abs().amax() > rounding)
    within_ND = within_ND * (within_ND.detach().abs().amax() > rounding)
    between_CD = count_C.sqrt()[:, None] * mean_CD
    return ClassScatter(between_CD, between_CD.square().sum(), within_ND.square().sum(), centred_ND)
