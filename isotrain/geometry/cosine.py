"""Cosines and distances of unit embeddings. N embeddings (or pairs), D dimensions."""

import torch
from torch import Tensor


def unit_rows(x_ND: Tensor) -> Tensor:
    """Embeddings scaled to length 1; a zero vector stays zero.

    The largest entry is divided out first, so that lengths neither overflow nor underflow.
    """
    largest_N1 = x_ND.abs().amax(dim=1, keepdim=True)
    scaled_ND = x_ND / torch.where(largest_N1 > 0, largest_N1, 1.0)
    length_N1 = scaled_ND.norm(dim=1, keepdim=True)
    return scaled_ND / torch.where(length_N1 > 0, length_N1, 1.0)


def paired_cosines(x_ND: Tensor, y_ND: Tensor) -> Tensor:
    """Cosine `[N]` of each pair (x_i, y_i); 0 if either vector is zero."""
    return (unit_rows(x_ND) * unit_rows(y_ND)).sum(dim=1)


def sum_pairwise_cosines(x_ND: Tensor) -> Tensor:
    """Sum of the cosines of all ordered pairs of distinct embeddings, in O(N·D).

    ‖Σ u_i‖² − Σ ‖u_i‖² with u_i the unit vectors. Differentiable; a zero vector has cosine 0.
    """
    unit_ND = unit_rows(x_ND)
    return unit_ND.sum(dim=0).square().sum() - unit_ND.square().sum()


def mean_pairwise_cosine(x_ND: Tensor) -> Tensor:
    """Mean cosine over all ordered pairs of distinct embeddings, in O(N·D)."""
    return sum_pairwise_cosines(x_ND) / (len(x_ND) * (len(x_ND) - 1))


def mean_distance_power(x_ND: Tensor, y_ND: Tensor, alpha: float) -> Tensor:
    """mean_i ‖u_i − v_i‖^alpha with u_i and v_i the unit vectors, in [0, 2^alpha].

    Differentiable; the gradient of a pair at distance 0 is 0, also where alpha < 2. A zero vector
    stays zero, at distance 1 of any direction.
    """
    square_N = (unit_rows(x_ND) - unit_rows(y_ND)).square().sum(dim=1)
    apart_N = square_N > 0
    power_N = torch.where(apart_N, square_N, 1.0).pow(alpha / 2.0)  # no infinite slope at 0
    return torch.where(apart_N, power_N, 0.0).mean()
