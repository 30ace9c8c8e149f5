"""Variance of dominant directions and the noise floor. N embeddings, D dimensions, S = R + 1."""

import math

import torch
from torch import Tensor

from isotrain.geometry.rows import finite_rows


def noise_floor(
    centred_ND: Tensor, direction_DR: Tensor, level: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`level` times the root of a cloud's noise floor, and the share of directions above it.

    The noise floor is the mean variance of the D − R dimensions outside of the orthonormal
    `direction` (zero columns do not count), so that it does not depend on N. Direction i with
    variance λ_i has the standard deviation level·√bulk once the share 1 − level·√(bulk/λ_i) of
    its coordinate is removed; for a weaker one the share is 0. Differentiable.
    """
    n_directions = direction_DR.detach().square().sum().round()
    spread_R = (centred_ND @ direction_DR).square().sum(dim=0)
    left = (centred_ND.square().sum() - spread_R.sum()).clamp_min(0.0)
    freedom = len(centred_ND) - 1
    bulk = left / (centred_ND.shape[1] - n_directions).clamp_min(1)  # of Σ(x·v)²
    kept_R = level * root(bulk / torch.where(spread_R > 0, spread_R, 1.0))
    kept_R = kept_R.clamp(max=1.0)
    share_R = torch.where(spread_R > 0, 1.0 - kept_R, 0.0)
    return level * root(bulk / max(1, freedom)), share_R


def root(x: Tensor) -> Tensor:
    """√x with gradient 0, not infinity, where x is 0."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def capped_basis(basis_DS: Tensor, rho: float, n_embeddings: float) -> Tensor:
    """The first R of R + 1 columns: at most floor(rho·(N − 1)), and at most rank − 1."""
    n_components = max(0, basis_DS.shape[1] - 1)
    cap = math.floor(rho * (n_embeddings - 1) + 1e-9)
    most = (basis_DS.square().sum().round() - 1).clamp(max=cap)  # a tensor: no device sync
    kept_R = torch.arange(n_components, device=basis_DS.device) < most
    return basis_DS[:, :n_components] * kept_R


def rms_distance(x_ND: Tensor) -> Tensor:
    """Root of the mean squared distance of embeddings from their mean. Differentiable."""
    return root((x_ND - x_ND.mean(dim=0)).square().sum(dim=1).mean())


@torch.no_grad()
def energy_kept(before_ND: Tensor, after_ND: Tensor) -> Tensor:
    """Variance retained: scatter after over scatter before (finite embeddings); 1 without any."""
    finite_NE = finite_rows(torch.cat([before_ND, after_ND], dim=1))
    pair = finite_NE.tensor_split([before_ND.shape[1]], dim=1)
    before, after = (rms_distance(x_ND).square() for x_ND in pair)
    return torch.where(before > 0, after / torch.where(before > 0, before, 1.0), 1.0)
