"""Distances of paired rows on the sphere. N pairs, D dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows


def mean_distance_power(x_ND: Tensor, y_ND: Tensor, alpha: float) -> Tensor:
    """mean_i ‖u_i − v_i‖^alpha with u_i and v_i the unit rows, in [0, 2^alpha].

    Differentiable; the gradient of a pair at distance 0 is 0, also where alpha < 2. A zero row
    stays zero, at distance 1 of any direction.

    >>> mean_distance_power(torch.tensor([[2.0, 0.0]]), torch.tensor([[-1.0, 0.0]]), 2.0).item()
    4.0
    """
    square_N = (unit_rows(x_ND) - unit_rows(y_ND)).square().sum(dim=1)
    apart_N = square_N > 0
    power_N = torch.where(apart_N, square_N, 1.0).pow(alpha / 2.0)  # no infinite slope at 0
    return torch.where(apart_N, power_N, 0.0).mean()
