"""Cosines between the rows of a cloud. N rows, D dimensions."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_rows(x_ND: Tensor) -> Tensor:
    """Rows scaled to length 1; a zero row stays zero.

    The largest entry is divided out first, so that lengths neither overflow nor underflow.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    largest_N1 = x_ND.abs().amax(dim=1, keepdim=True)
    scaled_ND = x_ND / torch.where(largest_N1 > 0, largest_N1, 1.0)
    length_N1 = scaled_ND.norm(dim=1, keepdim=True)
    return scaled_ND / torch.where(length_N1 > 0, length_N1, 1.0)


def sum_pairwise_cosines(x_ND: Tensor) -> Tensor:
    """Sum of the cosines of all ordered pairs of distinct rows, in O(N·D).

    ‖Σ u_i‖² − Σ ‖u_i‖² with u_i the unit rows. Differentiable; a zero row has cosine 0.

    >>> sum_pairwise_cosines(torch.tensor([[1.0, 0.0], [2.0, 0.0]])).item()
    2.0
    """
    unit_ND = unit_rows(x_ND)
    return unit_ND.sum(dim=0).square().sum() - unit_ND.square().sum()


def mean_pairwise_cosine(x_ND: Tensor) -> Tensor:
    """Mean cosine over all ordered pairs of distinct rows, `sum_pairwise_cosines` / (N(N−1)).

    >>> mean_pairwise_cosine(torch.eye(3)).item()
    0.0
    """
    return sum_pairwise_cosines(x_ND) / (len(x_ND) * (len(x_ND) - 1))
