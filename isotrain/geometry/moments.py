"""Sums over the rows of a cloud that can be added up over batches and processes. D dimensions."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Sums over N rows x_i in float64; y_i = x_i − mean, u_i = x_i/‖x_i‖.

    Centred sums instead of raw ones: with a mean of norm 16,000 and a variance of 1, Σxxᵀ keeps
    eight digits of the variance, Σyyᵀ all of them. O(D²) memory, whatever N is.
    """

    n: Tensor
    mean_D: Tensor
    scatter_DD: Tensor  # Σ y yᵀ
    cube_D: Tensor  # Σ y³, by coordinate
    fourth_D: Tensor  # Σ y⁴, by coordinate
    norm_cube_D: Tensor  # Σ ‖y‖²·y
    norm_fourth: Tensor  # Σ ‖y‖⁴
    unit_sum_D: Tensor  # Σ u
    unit_square_D: Tensor  # Σ u², by coordinate


def no_rows(width: int) -> Moments:
    """The moments of no rows at all: what adding up starts from.

    >>> no_rows(2).n.item()
    0.0
    """
    zero = torch.zeros((), dtype=torch.float64)
    zero_D = zero.expand(width).clone()
    return Moments(
        n=zero,
        mean_D=zero_D,
        scatter_DD=torch.zeros(width, width, dtype=torch.float64),
        cube_D=zero_D,
        fourth_D=zero_D,
        norm_cube_D=zero_D,
        norm_fourth=zero,
        unit_sum_D=zero_D,
        unit_square_D=zero_D,
    )


def merged(first: Moments, *others: Moments) -> Moments:
    """The moments of all rows together.

    Every part is moved to the common mean by the binomial expansion of Σ(y + δ)^k, Σy = 0.

    >>> merged(no_rows(3), no_rows(3)).mean_D.tolist()
    [0.0, 0.0, 0.0]
    """
    parts = (first, *others)
    n = sum((part.n for part in others), first.n)
    anchor = max(parts, key=lambda part: float(part.n)).mean_D  # equal means stay as they are
    pulls = [part.n * (part.mean_D - anchor) for part in parts]
    mean_D = anchor + sum(pulls[1:], pulls[0]) / n.clamp_min(1.0)
    return reduce(_added, (_moved(part, mean_D) for part in parts))


def _moved(part: Moments, mean_D: Tensor) -> Moments:
    """The same rows, their sums taken about another point."""
    delta_D, n = part.mean_D - mean_D, part.n
    square_D = part.scatter_DD.diagonal()
    far, trace = delta_D.square().sum(), square_D.sum()
    pulled_D = part.scatter_DD @ delta_D
    return part._replace(
        mean_D=mean_D,
        scatter_DD=part.scatter_DD + n * torch.outer(delta_D, delta_D),
        cube_D=part.cube_D + 3.0 * delta_D * square_D + n * delta_D**3,
        fourth_D=part.fourth_D
        + 4.0 * delta_D * part.cube_D
        + 6.0 * delta_D**2 * square_D
        + n * delta_D**4,
        norm_cube_D=part.norm_cube_D + trace * delta_D + 2.0 * pulled_D + n * far * delta_D,
        norm_fourth=part.norm_fourth
        + 4.0 * delta_D @ part.norm_cube_D
        + 4.0 * delta_D @ pulled_D
        + 2.0 * trace * far
        + n * far.square(),
    )


def _added(a: Moments, b: Moments) -> Moments:
    """Sums about the same mean."""
    total = Moments(*(left + right for left, right in zip(a, b, strict=True)))
    return total._replace(mean_D=a.mean_D)
