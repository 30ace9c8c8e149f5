"""The affine map that a function of rows is, found by trying it, or why it is none.

N rows, D width in, E width out. All in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LIMIT = 1e-9  # largest deviation, over the rms of rows and results
FAR = 1000  # times as far from their mean, the rows are tried too


class Affine(NamedTuple):
    """y = x A + b."""

    matrix_DE: Tensor
    bias_E: Tensor

    def __call__(self, x_ND: Tensor) -> Tensor:
        """`[N, E]`."""
        return x_ND @ self.matrix_DE + self.bias_E

    def then(self, other: Affine) -> Affine:
        """This map and then another: x (A A') + (b A' + b')."""
        return Affine(self.matrix_DE @ other.matrix_DE, other(self.bias_E[None])[0])


class NotAffineError(ValueError):
    """No affine map gives what a function gives on these rows."""


def identity(width: int) -> Affine:
    """The map that changes nothing.

    >>> identity(2)(torch.ones(1, 2, dtype=torch.float64)).tolist()
    [[1.0, 1.0]]
    """
    eye_DD = torch.eye(width, dtype=torch.float64)
    return Affine(eye_DD, torch.zeros(width, dtype=torch.float64))


@torch.no_grad()
def affine_of(function: Callable[[Tensor], Tensor], rows_ND: Tensor, name: str) -> Affine:
    """The affine map that `function` is on given rows: b = f(0), row i of A = f(e_i) − b.

    An affine function is this one and no other, to the rounding of float64. That it is one is a
    matter of the rows: each must be mapped as A and b say, to 1e-9 of the rms of all. So must the
    rows 1,000 times as far from their mean: a bound that no known row reaches may clip new ones.

    Raises:
        NotAffineError: some rows are not; how many, by how much, and `name` are told.

    >>> rows = torch.randn(5, 2, dtype=torch.float64)
    >>> affine_of(lambda x: 2 * x + 1, rows, "a map").bias_E.tolist()
    [1.0, 1.0]
    >>> affine_of(torch.relu, rows - 9, "relu")
    Traceback (most recent call last):
        ...
    isotrain.export.affine.NotAffineError: relu is no affine map: 5 of 5 rows ...
    """
    rows_ND = rows_ND.double()
    width = rows_ND.shape[1]
    probes_ND = torch.cat([torch.zeros_like(rows_ND[:1]), torch.eye(width, dtype=torch.float64)])
    found_NE = function(probes_ND)
    affine = Affine(found_NE[1:] - found_NE[0], found_NE[0])
    mean_D = rows_ND.mean(dim=0)
    far_ND = mean_D + FAR * (rows_ND - mean_D)
    for where, tried_ND in (("", rows_ND), (f", {FAR:,} times as far from their mean,", far_ND)):
        own_NE = function(tried_ND)
        deviation_N = (affine(tried_ND) - own_NE).abs().amax(dim=1)
        rms = float(own_NE.square().mean().sqrt())
        limit = LIMIT * max(rms, float(tried_ND.square().mean().sqrt()))
        if n_off := int((~(deviation_N <= limit)).sum()):
            raise NotAffineError(
                f"{name} is no affine map: {n_off:,} of {len(rows_ND):,} rows of this run{where} "
                "are not where the map through 0 and the unit vectors puts them, by up to "
                f"{float(deviation_N.max()):.2g} (rms of what it gives: {rms:.2g})"
            )
    return affine
