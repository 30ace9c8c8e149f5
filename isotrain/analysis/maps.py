"""Embeddings on their leading principal directions, and the look of such maps.

N embeddings, D dimensions, R directions, M points of a map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from isotrain.geometry.clusters import centre_rows
from isotrain.geometry.linalg import leading_directions

POINT = {"s": 4.0, "linewidths": 0, "rasterized": True}  # size in square points


def principal_map(x_ND: Tensor, n_directions: int = 3) -> tuple[Tensor, Tensor]:
    """Embeddings `[N, R]` along the leading principal directions, and the variance share of each.

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


def draw_by_frequency(axis: Any, point_MR: np.ndarray, frequency_M: np.ndarray) -> Any:
    """Points coloured by how often their token occurs, on a logarithmic scale; rare ones on top."""
    order = np.argsort(-frequency_M, kind="stable")
    colours = {"c": frequency_M[order], "norm": "log", "cmap": "viridis"}
    return axis.scatter(*point_MR[order].T, **colours, **POINT)
