"""Sums over embeddings that add up over batches and ranks; running covariance. D dimensions."""

from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import finite_rows


class ShapeSums(NamedTuple):
    """Sums over centred embeddings y: y², y³ and y⁴ by coordinate, ‖y‖²·y, and ‖y‖⁴."""

    square_D: Tensor
    cube_D: Tensor
    fourth_D: Tensor
    norm_cube_D: Tensor
    norm_fourth: Tensor


class UnitSums(NamedTuple):
    """Sums over unit vectors u: u, and u² by coordinate. A zero vector adds nothing."""

    sum_D: Tensor
    square_D: Tensor


class Moments(NamedTuple):
    """Sums over N embeddings x_i in float64; y_i = x_i − mean, u_i = x_i/‖x_i‖.

    Centred sums: with a mean of norm 16,000 and a variance of 1, Σxxᵀ keeps eight digits of the
    variance, Σyyᵀ all of them. O(D²) memory, whatever N is.
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


def empty_moments(width: int) -> Moments:
    """The moments of no embeddings: what adding up starts from."""
    zero, zero_D, zero_DD = (torch.zeros([width] * k, dtype=torch.float64) for k in range(3))
    return Moments(zero, zero_D, zero_DD, zero_D, zero_D, zero_D, zero, zero_D, zero_D)


def merged(first: Moments, *others: Moments) -> Moments:
    """The moments of all embeddings together.

    Every part is moved to the common mean by the binomial expansion of Σ(y + δ)^k, Σy = 0.
    """
    parts = (first, *others)
    n = sum((part.n for part in others), first.n)
    anchor = max(parts, key=lambda part: float(part.n)).mean_D  # equal means stay as they are
    pulls = [part.n * (part.mean_D - anchor) for part in parts]
    mean_D = anchor + sum(pulls[1:], pulls[0]) / n.clamp_min(1.0)
    total: Moments = reduce(added, (_moved(part, mean_D) for part in parts))
    return total._replace(mean_D=mean_D)


def _moved(part: Moments, mean_D: Tensor) -> Moments:
    """The same sums, taken about another point."""
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


def added(a: Any, b: Any) -> Any:
    """Part by part."""
    return type(a)(*(left + right for left, right in zip(a, b, strict=True)))


def rounding_of(mean_D: Tensor, n: int) -> Tensor:
    """Σ y² of each coordinate that rounding alone leaves of n equal embeddings, at most."""
    return n * (8.0 * torch.finfo(torch.float64).eps * mean_D).square()


def shape_sums(y_BD: Tensor) -> ShapeSums:
    """The sums over a block of centred embeddings."""
    square_BD = y_BD.square()
    norm_B = square_BD.sum(dim=1)
    return ShapeSums(
        square_BD.sum(dim=0),
        (square_BD * y_BD).sum(dim=0),
        square_BD.square().sum(dim=0),
        norm_B @ y_BD,
        norm_B @ norm_B,
    )


def unit_sums(x_BD: Tensor) -> UnitSums:
    """The sums over a block of embeddings, scaled to length 1."""
    square_BD = x_BD.square()
    length_B = square_BD.sum(dim=1)  # squared
    if not bool(((length_B > 1e-200) & (length_B < 1e200)).all()):  # zero, or squares out of range
        unit_BD = unit_rows(x_BD)
        return UnitSums(unit_BD.sum(dim=0), unit_BD.square().sum(dim=0))
    return UnitSums(length_B.rsqrt() @ x_BD, length_B.reciprocal() @ square_BD)


class RunningCovariance:
    """Number, mean and scatter of the finite embeddings added so far, in float64.

    Sums are taken about the mean, so that a mean far from 0 costs no digits.
    """

    def __init__(self, width: int, device: torch.device | None = None) -> None:
        self.n = 0
        self.mean_D = torch.zeros(width, dtype=torch.float64, device=device)
        self.scatter_DD = torch.zeros(width, width, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, x_ND: Tensor) -> None:
        """Take in the embeddings without a NaN or infinity."""
        x_ND = finite_rows(x_ND.detach()).double()
        if len(x_ND) == 0:
            return
        n, mean_D = self.n + len(x_ND), x_ND.mean(dim=0)
        centred_ND, apart_D = x_ND - mean_D, mean_D - self.mean_D
        self.scatter_DD += centred_ND.T @ centred_ND
        self.scatter_DD += torch.outer(apart_D, apart_D) * (self.n * len(x_ND) / n)
        self.mean_D += apart_D * (len(x_ND) / n)
        self.n = n

    def covariance(self) -> Tensor:
        """Σ(x − m)(x − m)ᵀ/(N − 1) `[D, D]`; zeros for N < 2."""
        return self.scatter_DD / max(self.n - 1, 1)
