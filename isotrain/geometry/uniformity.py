"""Mean Gaussian potential of row pairs, in log space.

N rows, D dimensions, P pairs, R rows not yet paired, B of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BLOCK_BYTES = 1 << 23  # of the largest array of a block


def log_mean_potential(x_ND: Tensor, t: float) -> Tensor:
    """ln mean_{i<j} exp(−t‖x_i − x_j‖²) over all pairs of rows, exact, in blocks.

    Squared distances come from products, with an error of about eps·‖x‖²: meant for rows of unit
    length. Differentiable; blocks are computed again in the backward pass, so the memory of a
    gradient does not grow with N² either. Keeps the dtype.

    >>> round(log_mean_potential(torch.tensor([[1.0], [-1.0]]), 2.0).item(), 6)
    -8.0
    """
    n = len(x_ND)
    size = max(1, BLOCK_BYTES // (n * x_ND.element_size()))
    starts = range(0, n - 1, size)  # the last row alone has no pair left
    parts = _of_blocks(lambda x_ND, start: _log_sum(x_ND[start:], size, t), x_ND, starts)
    return torch.logsumexp(torch.stack(parts), dim=0) - math.log(n * (n - 1) / 2)


def sampled_log_mean_potential(
    x_ND: Tensor, t: float, n_pairs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`log_mean_potential` of `n_pairs` drawn pairs of rows, and its standard error.

    Pairs i ≠ j are drawn evenly, with replacement, by `generator`, which lives on the CPU. The
    error is that of the logarithm by the delta method, sd/(mean·√P): it is about the given rows,
    whose pairs are sampled. Differentiable in `x`; differences are computed again in the backward
    pass, so a gradient too holds a few numbers per pair, and rows of one block.

    >>> x = torch.eye(3, dtype=torch.float64)
    >>> value, error = sampled_log_mean_potential(x, 2.0, 10, torch.Generator().manual_seed(0))
    >>> round(value.item(), 6), error.item()
    (-4.0, 0.0)
    """
    n, d = x_ND.shape
    first_P = torch.randint(n, (n_pairs,), generator=generator)
    second_P = torch.randint(n - 1, (n_pairs,), generator=generator)
    second_P = second_P + (second_P >= first_P)  # any row but the first
    size = max(1, BLOCK_BYTES // (d * x_ND.element_size()))

    def squared(x_ND: Tensor, start: int) -> Tensor:
        i, j = (p[start : start + size].to(x_ND.device) for p in (first_P, second_P))
        return (x_ND[i] - x_ND[j]).square().sum(dim=1)

    exponent_P = -t * torch.cat(_of_blocks(squared, x_ND, range(0, n_pairs, size)))
    largest = exponent_P.detach().max()
    potential_P = (exponent_P - largest).exp()
    mean = potential_P.mean()
    error = potential_P.detach().std() / (mean.detach() * n_pairs**0.5)
    return largest + mean.log(), error


def _of_blocks(
    function: Callable[[Tensor, int], Tensor], x_ND: Tensor, starts: range
) -> list[Tensor]:
    """`function(x, start)` of each block, computed again in the backward pass if there is one."""
    if len(starts) > 1 and x_ND.requires_grad and torch.is_grad_enabled():
        return [
            checkpoint(function, x_ND, start, use_reentrant=False, preserve_rng_state=False)
            for start in starts
        ]
    return [function(x_ND, start) for start in starts]


def _log_sum(rest_RD: Tensor, size: int, t: float) -> Tensor:
    """ln Σ exp(−t‖x_i − x_j‖²) over the first `size` rows i and all rows j > i."""
    squared_R = rest_RD.square().sum(dim=1)
    product_BR = rest_RD[:size] @ rest_RD.T
    distance_BR = squared_R[:size, None] + squared_R - 2.0 * product_BR
    pair_BR = torch.ones_like(distance_BR, dtype=torch.bool).triu(1)
    return torch.logsumexp((-t * distance_BR).masked_fill(~pair_BR, -torch.inf).flatten(), dim=0)
