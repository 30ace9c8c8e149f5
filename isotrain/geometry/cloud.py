"""A point cloud shared by several metrics. N embeddings, D dimensions, S the smaller one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, reduce
from typing import Any, TypeVar

import torch
from torch import Tensor

from isotrain.geometry.moments import (
    Moments,
    ShapeSums,
    UnitSums,
    added,
    rounding_of,
    shape_sums,
    unit_sums,
)
from isotrain.geometry.rows import check_shape, has_scatter
from isotrain.geometry.spectrum import spectrum_of

SUM_ENTRIES = 1 << 15  # of a block whose entries are summed: 256 KiB stay in cache
PRODUCT_ROWS, PRODUCT_COLUMNS = 256, 192  # columns: near half of the product is not computed
Metric = TypeVar("Metric", bound=Callable[..., Any])


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

    unit, shrink = 1.0, 1.0  # powers of two; `shrink` brings the largest entry near 1
    source: Tensor | None = None  # as it was given; None for a cloud known by its moments
    x: Tensor | None = None

    def __init__(self, x: Tensor, min_rows: int = 2) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"a cloud is a torch tensor, got {type(x)}; torch.as_tensor(x)")
        check_shape(x, min_rows)
        if x.is_complex():
            raise ValueError(
                f"a cloud is real, got {x.dtype}; pass x.real, or both parts side by side"
            )
        self.source = x
        self.x = x if x.is_floating_point() else x.double()
        self.n, self.d = x.shape
        low, high = torch.aminmax(self.x.detach())  # in one pass; NaN if any entry is
        largest = max(-float(low), float(high))
        if not math.isfinite(largest):
            bad_N = ~torch.isfinite(x).all(dim=1)
            raise ValueError(
                f"a cloud must be finite, {int(bad_N.sum())} of {len(x)} rows are not (the first "
                f"is row {int(bad_N.nonzero()[0])}); look for a diverged run or drop those rows"
            )
        self.shrink = to_one(largest)
        if not 1e-60 < largest < 1e60:
            self.unit = self.shrink

    @classmethod
    def of(cls, x: Tensor | Cloud, min_rows: int = 2) -> Cloud:
        """`x` if it is a cloud of that many rows, or the cloud of `x`."""
        if not isinstance(x, Cloud):
            return cls(x, min_rows)
        check_shape(x, min_rows)
        return x

    @classmethod
    def from_moments(cls, moments: Moments) -> Cloud:
        """A cloud from its moments; anything that needs single embeddings raises."""
        cloud = cls.__new__(cls)
        cloud.n, cloud.d = int(moments.n), len(moments.mean_D)
        cloud.mean_D, cloud.scatter_DD = moments.mean_D, moments.scatter_DD
        square_D = moments.scatter_DD.diagonal()
        cloud.shape_sums = ShapeSums(
            square_D, moments.cube_D, moments.fourth_D, moments.norm_cube_D, moments.norm_fourth
        )
        cloud.unit_sums = UnitSums(moments.unit_sum_D, moments.unit_square_D)
        cloud.has_scatter = bool((square_D > rounding_of(moments.mean_D, cloud.n)).any())
        return cloud

    @property
    def shape(self) -> torch.Size:
        """`[N, D]`."""
        return torch.Size((self.n, self.d))

    @cached_property
    def rows(self) -> Tensor:
        """The given embeddings in float64."""
        return self._given.double()

    @cached_property
    def has_scatter(self) -> bool:
        """Whether the embeddings differ by more than rounding."""
        assert self.x is not None
        return has_scatter(self.x[:8].detach().double()) or has_scatter(self.rows.detach())

    @cached_property
    def mean_D(self) -> Tensor:
        """Mean of the embeddings."""
        given = self._given if self.unit == 1.0 else self._given.double() * self.unit
        return given.mean(dim=0, dtype=torch.float64)

    @cached_property
    def scatter_DD(self) -> Tensor:
        """Σ y yᵀ over centred embeddings y."""
        return self.product()

    @cached_property
    def gram_SS(self) -> Tensor:
        """Products of centred embeddings on the smaller side: both have the same spectrum."""
        if self.x is None or self.n >= self.d:
            return self.scatter_DD
        centred_ND = self.rows * self.unit - self.mean_D
        return centred_ND @ centred_ND.T

    @cached_property
    def uncentred_gram_SS(self) -> Tensor:
        """`gram_SS` without the centring."""
        if self.x is None or self.n >= self.d:
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
        """Second to fourth moments by coordinate, third and fourth of the norms."""
        total: ShapeSums = reduce(added, map(shape_sums, self._centred_blocks(self._sum_rows)))
        return total

    @cached_property
    def unit_sums(self) -> UnitSums:
        """First and second moments of unit vectors, by coordinate."""
        blocks = (block_BD.double() for block_BD in torch.split(self._given, self._sum_rows))
        total: UnitSums = reduce(added, map(unit_sums, blocks))
        return total

    @property
    def moments(self) -> Moments:
        """Everything that follows from sums, to be merged with that of further embeddings."""
        if self.unit != 1.0:
            raise ValueError(
                "moments of entries beyond 1e±60 leave the range of float64; scale the rows"
            )
        shape, unit = self.shape_sums, self.unit_sums
        n = self.mean_D.new_tensor(float(self.n))
        return Moments(n, self.mean_D, self.scatter_DD, *shape[1:], *unit)

    def product(self, precision: torch.dtype = torch.float64) -> Tensor:
        """Σ y yᵀ `[D, D]` over centred embeddings y: products in `precision`, sums in float64.

        Only the blocks on and above the diagonal are computed.
        """
        d, exact = self.d, precision == torch.float64
        product_DD = self.mean_D.new_zeros(d, d)
        fits = exact or 2.0**-26 < self.shrink < 2.0**26  # squares leave float32's range early
        narrow = 1.0 if fits else self.shrink / self.unit
        with torch.autocast(product_DD.device.type, enabled=False):
            for y_BD in self._centred_blocks(PRODUCT_ROWS if exact else 4 * PRODUCT_ROWS):
                if not exact:
                    y_BD = (y_BD if fits else y_BD * narrow).to(precision)
                for first in range(0, d, PRODUCT_COLUMNS):
                    past = first + PRODUCT_COLUMNS
                    rows_CB, columns_BE = y_BD[:, first:past].T, y_BD[:, first:]
                    if exact:
                        product_DD[first:past, first:].addmm_(rows_CB, columns_BE)
                    else:
                        product_DD[first:past, first:] += rows_CB @ columns_BE
        for first in range(PRODUCT_COLUMNS, d, PRODUCT_COLUMNS):
            past = first + PRODUCT_COLUMNS
            product_DD[first:past, :first] = product_DD[:first, first:past].T
        return product_DD if fits else product_DD / narrow**2

    @property
    def _given(self) -> Tensor:
        if self.x is None:
            raise ValueError(
                "this metric has to see the rows, and a stream keeps their moments alone; "
                "give it the rows, or a stream with max_rows"
            )
        return self.x if self.x.requires_grad else self.x.detach()

    @property
    def _sum_rows(self) -> int:
        return max(16, SUM_ENTRIES // self.d)

    def _centred_blocks(self, n_rows: int) -> Iterator[Tensor]:
        """Blocks of centred embeddings in float64, times `unit`."""
        for block_BD in torch.split(self._given, n_rows):
            rows_BD = block_BD if self.unit == 1.0 else block_BD.double() * self.unit
            yield rows_BD - self.mean_D


def to_one(largest: float) -> float:
    """The power of two that brings a number into [1/2, 1), within the range of float64; 1 for 0."""
    return 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))


def from_moments(metric: Metric) -> Metric:
    """Marks a metric of the moments alone: a stream computes it without keeping embeddings."""
    metric.from_moments = True  # type: ignore[attr-defined]
    return metric
