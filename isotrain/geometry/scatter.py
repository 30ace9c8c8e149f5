"""Classes: their numbers, folds and scatter. N embeddings, D dimensions, C classes."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.groups import hashed_order

N_SLICES = 5  # classes that scores are cut into


def class_ids(labels_N: Tensor, n_labels: int) -> Tensor:
    """Labels as class numbers 0…C−1 `[N]` int64, in the order of the labels."""
    if labels_N.shape != (n_labels,):
        raise ValueError(
            f"labels must be [N] = [{n_labels}], one class number per embedding, "
            f"got shape {tuple(labels_N.shape)}"
        )
    if labels_N.is_floating_point() and len(broken := labels_N[labels_N % 1 != 0]):
        raise ValueError(
            f"labels must be whole class numbers, got {broken[0].item()}; slice a score into "
            "classes first, e.g. by torch.bucketize at its quantiles"
        )
    value_C: Tensor
    class_N: Tensor
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
    class_N: Tensor = torch.unique(labels_N, return_inverse=True)[1]
    return class_N


def stratified_folds(class_N: Tensor, n_folds: int, seed: int = 0) -> Tensor:
    """Fold 0…F−1 of each embedding `[N]`, stratified by class.

    Members of a class follow a hash of (seed, position), and classes go in their order. The sizes
    of folds differ by at most one, in each class and in all.
    """
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
    centred_ND: Tensor  # the embeddings less their mean


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
