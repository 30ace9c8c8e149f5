"""Pairs of embeddings: cosines, distances, potentials, contrast. N embeddings, D dimensions."""

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BLOCK_BYTES = 1 << 23  # of the largest array of a block


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
    distinct_N = square_N > 0
    power_N = torch.where(distinct_N, square_N, 1.0).pow(alpha / 2.0)  # no infinite slope at 0
    return torch.where(distinct_N, power_N, 0.0).mean()


def log_mean_potential(x_ND: Tensor, t: float) -> Tensor:
    """ln mean_{i<j} exp(−t‖x_i − x_j‖²) over all pairs of embeddings, exact, in blocks.

    Squared distances come from products, with an error of about eps·‖x‖²: meant for unit vectors.
    Differentiable; blocks are computed again in the backward pass, so memory does not grow with N².
    """
    n = len(x_ND)
    size = max(1, BLOCK_BYTES // (n * x_ND.element_size()))
    starts = range(0, n - 1, size)  # the last embedding has no pair left
    if len(starts) > 1 and x_ND.requires_grad and torch.is_grad_enabled():
        parts = [
            checkpoint(_log_sum, x_ND[s:], size, t, use_reentrant=False, preserve_rng_state=False)
            for s in starts
        ]
    else:
        parts = [_log_sum(x_ND[s:], size, t) for s in starts]
    return torch.logsumexp(torch.stack(parts), dim=0) - math.log(n * (n - 1) / 2)


def _log_sum(rest_RD: Tensor, size: int, t: float) -> Tensor:
    """ln Σ exp(−t‖x_i − x_j‖²) over the first `size` i and all j > i."""
    squared_R = rest_RD.square().sum(dim=1)
    product_BR = rest_RD[:size] @ rest_RD.T
    distance_BR = squared_R[:size, None] + squared_R - 2.0 * product_BR
    pair_BR = torch.ones_like(distance_BR, dtype=torch.bool).triu(1)
    return torch.logsumexp((-t * distance_BR).masked_fill(~pair_BR, -torch.inf).flatten(), dim=0)


def contrast(logits_NM: Tensor, decoupled: bool = False) -> Tensor:
    """Mean over anchors i of ln Σ_j exp(l_ij) − l_ii, in nats: candidate i is the positive of i.

    M ≥ N; all other candidates are negatives. In [0, ∞); `decoupled` leaves j = i out of the sum,
    and the value may be negative. One candidate alone is a positive without a negative: 0, with
    zero gradient.
    """
    n, m = logits_NM.shape
    if m == 1:
        return logits_NM.sum() * 0.0
    positive_N = logits_NM.diagonal()
    if decoupled:
        is_positive_NM = torch.eye(n, m, dtype=torch.bool, device=logits_NM.device)
        logits_NM = logits_NM.masked_fill(is_positive_NM, -torch.inf)
    return (logits_NM.logsumexp(dim=1) - positive_N).mean()


def ranking(score_B: Tensor, label_B: Tensor, scale: float) -> Tensor:
    """ln(1 + Σ exp(scale·(s_i − s_j))) over all i, j with y_i < y_j, in [0, ∞) nats.

    The i-th of B pairs has score s_i and label y_i, classes or graded; the loss falls as scores
    follow the order of the labels. Equal labels are not compared: 0, with zero gradient, where
    all are equal.
    """
    difference_BB = score_B[:, None] - score_B[None, :]
    exponents = scale * difference_BB[label_B[:, None] < label_B[None, :]]
    return torch.cat([exponents.new_zeros(1), exponents]).logsumexp(dim=0)
