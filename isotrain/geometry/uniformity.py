"""Mean Gaussian potential of pairs, in log space. N embeddings, P pairs, R unpaired, B a block."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

BLOCK_BYTES = 1 << 23  # of the largest array of a block


def log_mean_potential(x_ND: Tensor, t: float) -> Tensor:
    """ln mean_{i<j} exp(−t‖x_i − x_j‖²) over all pairs of embeddings, exact, in blocks.

    Squared distances come from products, with an error of about eps·‖x‖²: meant for unit vectors.
    Differentiable; blocks are computed again in the backward pass, so memory does not grow with N².
    """
    n = len(x_ND)
    size = max(1, BLOCK_BYTES // (n * x_ND.element_size()))
    starts = range(0, n - 1, size)  # the last one has no pair left
    if len(starts) > 1 and x_ND.requires_grad and torch.is_grad_enabled():
        parts = [
            checkpoint(_log_sum, x_ND[s:], size, t, use_reentrant=False, preserve_rng_state=False)
            for s in starts
        ]
    else:
        parts = [_log_sum(x_ND[s:], size, t) for s in starts]
    return torch.logsumexp(torch.stack(parts), dim=0) - math.log(n * (n - 1) / 2)


def sampled_log_mean_potential(
    x_ND: Tensor, t: float, n_pairs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`log_mean_potential` of `n_pairs` drawn pairs, and its standard error.

    Pairs i ≠ j are drawn evenly, with replacement, by `generator`, which lives on the CPU. The
    error is that of the logarithm by the delta method, sd/(mean·√P). Differentiable in `x`, once;
    differences are computed again in the backward pass.
    """
    n = len(x_ND)
    first_P = torch.randint(n, (n_pairs,), generator=generator)
    second_P = torch.randint(n - 1, (n_pairs,), generator=generator)
    second_P = second_P + (second_P >= first_P)  # any but the first
    pair_2P = torch.stack([first_P, second_P]).to(x_ND.device)
    squared_P: Tensor = _SquaredDistances.apply(x_ND, pair_2P)  # type: ignore[no-untyped-call]
    exponent_P = -t * squared_P
    largest = exponent_P.detach().max()
    potential_P = (exponent_P - largest).exp()
    mean = potential_P.mean()
    error = potential_P.detach().std() / (mean.detach() * n_pairs**0.5)
    return largest + mean.log(), error


class _SquaredDistances(torch.autograd.Function):
    """‖x_i − x_j‖² of pairs, in blocks both ways; checkpoints would keep an [N, D] each."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, pair_2P: Tensor) -> Tensor:
        ctx.save_for_backward(x_ND, pair_2P)
        squared_P = x_ND.new_empty(pair_2P.shape[1])
        for squared_B, (i_B, j_B) in _blocks(x_ND, squared_P, pair_2P):
            squared_B.copy_((x_ND[i_B] - x_ND[j_B]).square_().sum(dim=1))
        return squared_P

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_P: Tensor) -> tuple[Tensor, None]:
        x_ND, pair_2P = ctx.saved_tensors
        gradient_ND = torch.zeros_like(x_ND)
        for gradient_B, (i_B, j_B) in _blocks(x_ND, gradient_P, pair_2P):
            towards_BD = (x_ND[i_B] - x_ND[j_B]).mul_(2.0 * gradient_B[:, None])
            gradient_ND.index_add_(0, i_B, towards_BD).index_add_(0, j_B, towards_BD, alpha=-1.0)
        return gradient_ND, None


def _blocks(x_ND: Tensor, value_P: Tensor, pair_2P: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Values and pairs, as many at a time as fill a block."""
    size = max(1, BLOCK_BYTES // (x_ND.shape[1] * x_ND.element_size()))
    return zip(torch.split(value_P, size), torch.split(pair_2P, size, dim=1), strict=True)


def _log_sum(rest_RD: Tensor, size: int, t: float) -> Tensor:
    """ln Σ exp(−t‖x_i − x_j‖²) over the first `size` i and all j > i."""
    squared_R = rest_RD.square().sum(dim=1)
    product_BR = rest_RD[:size] @ rest_RD.T
    distance_BR = squared_R[:size, None] + squared_R - 2.0 * product_BR
    pair_BR = torch.ones_like(distance_BR, dtype=torch.bool).triu(1)
    return torch.logsumexp((-t * distance_BR).masked_fill(~pair_BR, -torch.inf).flatten(), dim=0)
