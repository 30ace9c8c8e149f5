"""A point cloud shared by several metrics. N embeddings, D dimensions, S the smaller one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import check_shape, has_scatter
from isotrain.geometry.spectra import spectrum_of

SUM_ENTRIES = 1 << 15  # of a block whose entries are summed: 256 KiB stay in cache
PRODUCT_ROWS, PRODUCT_COLUMNS = 256, 192  # columns: nearly half of the product is skipped


class ShapeSums(NamedTuple):
    """Sums over centred embeddings y: y² and y⁴ by coordinate, and ‖y‖⁴."""

    square_D: Tensor
    fourth_D: Tensor
    norm_fourth: Tensor


class UnitSums(NamedTuple):
    """Sums over unit vectors u: u, and u² by coordinate. A zero vector adds nothing."""

    sum_D: Tensor
    square_D: Tensor


class Cloud:
    """Validated embeddings with lazily computed moments and spectra in float64.

    A metric starts with `Cloud.of(x)`, so it takes a tensor or a cloud; metrics given the same
    cloud compute nothing twice. It is read in blocks, and never copied to float64 as a whole. Where
    entries pass 1e±60, moments are those of x times a power of two (`unit`). Keeps the graph of an
    `x` that requires a gradient.

    Raises:
        ValueError: not `[N, D]`, fewer than `min_rows` embeddings, or a NaN or infinity.

    >>> Cloud(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).centred.tolist()
    [2.0, 0.0]
    """

    unit = 1.0  # a power of two

    def __init__(self, x: Tensor, min_rows: int = 2) -> None:
        check_shape(x, min_rows)
        if x.is_complex():
            raise ValueError(
                f"a cloud is real, got {x.dtype}; pass x.real, or both parts side by side"
            )
        self.x = x if x.is_floating_point() else x.double()
        self.n, self.d = self.shape = x.shape
        low, high = torch.aminmax(self.x.detach())  # in one pass; NaN if any entry is
        largest = max(-float(low), float(high))
        if not math.isfinite(largest):
            bad_N = ~torch.isfinite(x).all(dim=1)
            raise ValueError(
                f"a cloud must be finite, {int(bad_N.sum())} of {len(x)} rows are not (the first "
                f"is row {int(bad_N.nonzero()[0])}); look for a diverged run or drop those rows"
            )
        self.shrink = to_one(largest)  # brings the largest entry near 1
        if not 1e-60 < largest < 1e60:
            self.unit = self.shrink

    @classmethod
    def of(cls, x: Tensor | Cloud, min_rows: int = 2) -> Cloud:
        """`x` if it is a cloud of that many rows, or the cloud of `x`."""
        if not isinstance(x, Cloud):
            return cls(x, min_rows)
        check_shape(x, min_rows)
        return x

    @cached_property
    def rows(self) -> Tensor:
        """The given embeddings in float64."""
        return self.x.double()

    @cached_property
    def has_scatter(self) -> bool:
        """Whether the embeddings differ by more than rounding."""
        return has_scatter((self.x if self.x.dtype == torch.float32 else self.rows).detach())

    @cached_property
    def mean_D(self) -> Tensor:
        """Mean of the embeddings."""
        scaled_ND = self.x if self.unit == 1.0 else self.x.double() * self.unit
        return scaled_ND.mean(dim=0, dtype=torch.float64)

    @cached_property
    def scatter_DD(self) -> Tensor:
        """Σ y yᵀ over centred embeddings y. Only blocks on and above the diagonal are computed."""
        d = self.d
        product_DD = self.mean_D.new_zeros(d, d)
        for y_BD in self._centred_blocks(PRODUCT_ROWS):
            for start in range(0, d, PRODUCT_COLUMNS):
                stop = start + PRODUCT_COLUMNS
                product_DD[start:stop, start:].addmm_(y_BD[:, start:stop].T, y_BD[:, start:])
        for start in range(PRODUCT_COLUMNS, d, PRODUCT_COLUMNS):
            stop = start + PRODUCT_COLUMNS
            product_DD[start:stop, :start] = product_DD[:start, start:stop].T
        return product_DD

    @cached_property
    def gram_SS(self) -> Tensor:
        """Products of centred embeddings on the smaller side: both have the same spectrum."""
        if self.n >= self.d:
            return self.scatter_DD
        centred_ND = self.rows * self.unit - self.mean_D
        return centred_ND @ centred_ND.T

    @cached_property
    def uncentred_gram_SS(self) -> Tensor:
        """`gram_SS` without the centring."""
        if self.n >= self.d:
            return self.scatter_DD + self.n * torch.outer(self.mean_D, self.mean_D)
        rows_ND = self.rows * self.unit
        return rows_ND @ rows_ND.T

    @cached_property
    def centred(self) -> Tensor:
        """Eigenvalues `[D]` of the covariance, yᵀy/(N−1), falling."""
        if not self.has_scatter:
            return torch.zeros_like(self.mean_D)
        return spectrum_of(self.gram_SS / (self.n - 1), self.d, min(self.n - 1, self.d))

    @cached_property
    def uncentred(self) -> Tensor:
        """Eigenvalues `[D]` of the second moments about the origin, xᵀx/N, falling."""
        return spectrum_of(self.uncentred_gram_SS / self.n, self.d, min(self.n, self.d))

    def spectrum(self, center: bool) -> Tensor:
        """`centred` or `uncentred`."""
        return self.centred if center else self.uncentred

    @cached_property
    def shape_sums(self) -> ShapeSums:
        """Second and fourth moments by coordinate, fourth of the norms."""
        return ShapeSums(*_totals(map(_shape_sums, self._centred_blocks(self._sum_rows))))

    @cached_property
    def unit_sums(self) -> UnitSums:
        """First and second moments of unit vectors, by coordinate."""
        blocks = torch.split(self.x, self._sum_rows)
        return UnitSums(*_totals(_unit_sums(block_BD.double()) for block_BD in blocks))

    @property
    def _sum_rows(self) -> int:
        return max(16, SUM_ENTRIES // self.d)

    def _centred_blocks(self, n_rows: int) -> Iterator[Tensor]:
        """Blocks of centred embeddings in float64, times `unit`."""
        for block_BD in torch.split(self.x, n_rows):
            rows_BD = block_BD if self.unit == 1.0 else block_BD.double() * self.unit
            yield rows_BD - self.mean_D


def to_one(largest: float) -> float:
    """The power of two that brings a number into [1/2, 1), within the range of float64; 1 for 0."""
    return 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))


def _totals(blocks: Iterable[tuple[Tensor, ...]]) -> Iterator[Tensor]:
    """The sum of each part over blocks, from the first block on."""
    return (reduce(torch.add, part) for part in zip(*blocks, strict=True))


def _shape_sums(y_BD: Tensor) -> ShapeSums:
    square_BD = y_BD.square()
    norm_sq_B = square_BD.sum(dim=1)
    return ShapeSums(square_BD.sum(dim=0), square_BD.square().sum(dim=0), norm_sq_B @ norm_sq_B)


def _unit_sums(x_BD: Tensor) -> UnitSums:
    square_BD = x_BD.square()
    length_B = square_BD.sum(dim=1)  # squared
    if not bool(((length_B > 1e-200) & (length_B < 1e200)).all()):  # zero, or squares out of range
        unit_BD = unit_rows(x_BD)
        return UnitSums(unit_BD.sum(dim=0), unit_BD.square().sum(dim=0))
    return UnitSums(length_B.rsqrt() @ x_BD, length_B.reciprocal() @ square_BD)
