"""Second moments of a cloud without an eigenproblem. N rows, D dimensions."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class CovarianceTraces(NamedTuple):
    """tr C and ‖C‖²_F of the covariance C of a cloud."""

    trace: Tensor
    frobenius_squared: Tensor


def covariance_traces(x_ND: Tensor) -> CovarianceTraces:
    """Trace and squared Frobenius norm of the centred covariance, by the smaller Gram side.

    C = XcᵀXc/(N−1). For N < D the N×N Gram matrix has the same non-zero spectrum, so both
    numbers follow from it at O(N²D) instead of O(ND²). Differentiable.

    >>> import torch
    >>> t = covariance_traces(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> t.trace.item(), t.frobenius_squared.item()
    (2.0, 4.0)
    """
    centred_ND = x_ND - x_ND.mean(dim=0)
    n, d = centred_ND.shape
    gram = centred_ND @ centred_ND.T if n < d else centred_ND.T @ centred_ND
    return CovarianceTraces(centred_ND.square().sum() / (n - 1), gram.square().sum() / (n - 1) ** 2)
