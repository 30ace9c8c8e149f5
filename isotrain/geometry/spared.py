"""Directions of a whole cloud that are shrunk and never deleted.

N rows, D dimensions, J spared directions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.levels import root
from isotrain.geometry.linalg import leading_directions
from isotrain.geometry.scatter import N_SLICES, class_scatter, label_classes

N_BETWEEN = N_SLICES - 1  # between-class directions spared, at most


class Spared(NamedTuple):
    """A point and orthonormal directions; zero columns spare nothing."""

    mean_D: Tensor
    direction_DJ: Tensor


@torch.no_grad()
def fit_spared(
    x_ND: Tensor, n_leading: int, labels_N: Tensor | None, rho: float, effective_rows: int
) -> Spared:
    """The between-class directions of labelled rows, then the leading ones of what remains.

    Between-class directions are the principal ones of the class means, weighted by the rows of
    each class: C − 1 of them for C classes, 4 at most. Labels with fractions are scores, and are
    cut into five classes at their quantiles. All together are at most floor(rho·(N − 1)), N the
    `effective_rows`.

    >>> x = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> fit_spared(x, 1, None, rho=1.0, effective_rows=4).direction_DJ.abs().tolist()
    [[1.0], [0.0]]
    """
    mean_D = x_ND.mean(dim=0)
    left = math.floor(rho * (effective_rows - 1) + 1e-9)
    centred_ND = x_ND - mean_D
    columns = []
    if labels_N is not None:
        columns.append(_capped(_between_classes(x_ND, labels_N), left))
        left -= int(columns[0].square().sum().round())
        centred_ND = centred_ND - (centred_ND @ columns[0]) @ columns[0].T
    columns.append(_capped(leading_directions(centred_ND, n_leading), left))
    return Spared(mean_D, torch.cat(columns, dim=1))


def spared_coordinates(x_ND: Tensor, spared: Spared) -> Tensor:
    """How far the rows lie along each spared direction, `[N, J]`.

    >>> spared = Spared(torch.ones(2), torch.tensor([[1.0], [0.0]]))
    >>> spared_coordinates(torch.tensor([[4.0, 1.0]]), spared).tolist()
    [[3.0]]
    """
    return (x_ND - spared.mean_D) @ spared.direction_DJ


def _between_classes(x_ND: Tensor, labels_N: Tensor) -> Tensor:
    found = class_scatter(x_ND, label_classes(labels_N))
    return leading_directions(found.between_CD, N_BETWEEN)


def _capped(direction_DJ: Tensor, most: int) -> Tensor:
    return direction_DJ * (torch.arange(direction_DJ.shape[1], device=direction_DJ.device) < most)


def kept_share(after_ND: Tensor, coordinate_NJ: Tensor, direction_DJ: Tensor) -> Tensor:
    """The share `[J]` of each spared direction that brings it to the bulk level, at most 1.

    √(b/λ_j), λ_j the variance along direction j and b the mean variance of the other rows'
    dimensions, `after` what was done to them. Where nothing else varies, all is kept.
    Differentiable.

    >>> after_ND = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    >>> kept_share(after_ND, torch.tensor([[2.0], [-2.0]]), torch.tensor([[1.0], [0.0]])).tolist()
    [0.5]
    """
    n_spared = int(direction_DJ.square().sum().round())
    n_left = max(1, min(len(after_ND) - 1, after_ND.shape[1] - n_spared))
    bulk = (after_ND - after_ND.mean(dim=0)).square().sum() / n_left
    spread_J = (coordinate_NJ - coordinate_NJ.mean(dim=0)).square().sum(dim=0)
    kept_J = root(bulk / torch.where(spread_J > 0, spread_J, 1.0)).clamp(max=1.0)
    return torch.where((bulk > 0) & (spread_J > 0), kept_J, 1.0)
