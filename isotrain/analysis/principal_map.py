"""Rows on their leading principal directions, for maps.

N rows, D dimensions, R directions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.clusters import centre_rows
from isotrain.geometry.linalg import leading_directions


def principal_map(x_ND: Tensor, n_directions: int = 3) -> tuple[Tensor, Tensor]:
    """Rows `[N, R]` along the leading principal directions, and the share of variance of each.

    The sign of a direction is the solver's choice; here its largest entry is positive.

    >>> principal_map(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), 1)[0].tolist()
    [[2.0], [-2.0]]
    """
    centred_ND = centre_rows(x_ND.double())
    basis_DR = fixed_signs(leading_directions(centred_ND, n_directions))
    map_NR = centred_ND @ basis_DR
    total = centred_ND.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    return map_NR, map_NR.square().sum(dim=0) / total


def fixed_signs(basis_DR: Tensor) -> Tensor:
    """The directions, each with the sign that makes its largest entry positive."""
    largest_1R = basis_DR.gather(0, basis_DR.abs().argmax(dim=0, keepdim=True))
    return basis_DR * torch.where(largest_1R < 0, -1.0, 1.0)
