"""Leading principal directions. N rows, D dimensions, R directions."""

from __future__ import annotations

import torch
from torch import Tensor


def leading_directions(centred_ND: Tensor, n_directions: int) -> Tensor:
    """Orthonormal `[D, R]` basis of the leading principal directions of centred rows.

    The exact eigenproblem of the smaller side: the Gram matrix `[N, N]` for N ≤ D, the
    covariance `[D, D]` otherwise. A direction whose eigenvalue is within rounding of zero, and
    every column past the rank, is a zero column: it removes nothing. Signs are arbitrary.

    >>> leading_directions(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), 2).abs().tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    n, d = centred_ND.shape
    basis_DR = centred_ND.new_zeros(d, n_directions)
    k = min(n, d, n_directions)
    if k == 0:
        return basis_DR
    if n <= d:
        value, vector = torch.linalg.eigh(centred_ND @ centred_ND.T)
        top_DR = centred_ND.T @ vector[:, -k:]  # Xcᵀu = √λ·v
    else:
        value, vector = torch.linalg.eigh(centred_ND.T @ centred_ND)
        top_DR = vector[:, -k:]
    value_R = value[-k:].flip(0)
    top_DR = top_DR.flip(1)
    rounding = torch.finfo(value.dtype).eps * max(n, d)
    real_R = value_R > rounding * value_R[0].clamp_min(torch.finfo(value.dtype).tiny)
    # Columns of the Gram route are orthogonal up to rounding / (relative size of λ); one QR
    # of the few columns makes them orthonormal. Zeroed columns follow the real ones, so they
    # cannot tilt them.
    top_DR = torch.where(real_R, top_DR / top_DR.norm(dim=0).clamp_min(1e-30), 0.0)
    top_DR = torch.where(real_R, torch.linalg.qr(top_DR).Q, 0.0)
    basis_DR[:, :k] = top_DR
    return basis_DR
