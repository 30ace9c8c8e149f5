"""The projector on dominant directions, with an exact gradient. N embeddings, D width."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotrain.geometry.spectra import eigenpairs


def leading_projector(centred_ND: Tensor, n_removed: int) -> Tensor:
    """The projector M = V·Vᵀ `[D, D]` on the leading directions of a centred cloud X.

    V are the `n_removed` leading principal directions; those whose eigenvalue λ of XᵀX is within
    rounding of zero do not count.

    The gradient to X goes through V, once (no double backward); that of the mean is the caller's.
    It is made of the divided differences 1/(λ_i − λ_j) of Daleckii and Krein, for a removed
    direction i and another j. A gap g divides as g/(g² + (ε·λ_1)²) with ε = eps^(2/3) of the dtype,
    so equal eigenvalues give a finite gradient where that of `torch.linalg.eigh` is NaN. At a tie
    between a removed and another direction M jumps and has no derivative.

    M does not depend on the scale of X: where `has_scatter` says that there is none, remove
    nothing. `centred_ND`: finite, of sum zero; the result has its dtype. Call it outside of
    autocast.

    >>> x = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> leading_projector(x, 1).diagonal().tolist()
    [1.0, 0.0]
    """
    return _Projector.apply(centred_ND, n_removed)  # type: ignore[no-untyped-call]


class _Projector(torch.autograd.Function):
    """The eigenproblem of the smaller side, and divided differences instead of its backward."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, n_removed: int) -> Tensor:
        dtype, (n, d) = x_ND.dtype, x_ND.shape
        value_T, vector_TT, zero_1, x_ND = eigenpairs(x_ND, n_removed)
        root_DT = (  # V·√Λ
            x_ND.T @ vector_TT if n <= d else vector_TT * value_T.clamp_min(0.0).sqrt()
        )
        value_T, root_DT = value_T.flip(0), root_DT.flip(1)
        largest = value_T[:1].sum().clamp_min(torch.finfo(x_ND.dtype).tiny)  # 0 if N = 0
        n_leading = int((value_T > zero_1)[:n_removed].sum())
        basis_DR = torch.linalg.qr(root_DT[:, :n_leading])[0]
        ctx.save_for_backward(x_ND, basis_DR, value_T, root_DT[:, n_leading:], largest)
        return (basis_DR @ basis_DR.T).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_DD: Tensor) -> tuple[Tensor, None]:
        x_ND, basis_DR, value_T, root_DB, largest = ctx.saved_tensors
        dtype, gradient_DD = gradient_DD.dtype, gradient_DD.to(x_ND.dtype)
        n_leading = basis_DR.shape[1]
        level_R, level_B = (value_T / largest).split([n_leading, len(value_T) - n_leading])
        image_DR = 0.5 * (gradient_DD + gradient_DD.T) @ basis_DR
        image_DR = image_DR - basis_DR @ (basis_DR.T @ image_DR)
        # 1/(λ_i − λ_j) = 1/λ_i·(1 + λ_j/(λ_i − λ_j)), whose first term is all there is in the null
        # space, and the second needs no unit vectors.
        coefficient_BR = root_DB.T @ image_DR * _inverse(level_R - level_B[:, None]) / largest
        half_DR = (image_DR + root_DB @ coefficient_BR) * level_R.reciprocal() / largest
        # dL/dS = half·Vᵀ + V·halfᵀ and dL/dX = 2·X·dL/dS.
        gradient_ND = (x_ND @ half_DR) @ basis_DR.T + (x_ND @ basis_DR) @ half_DR.T
        return (2.0 * gradient_ND).to(dtype), None


def _inverse(gap: Tensor) -> Tensor:
    """1/gap, damped where the gap, in units of λ_1, is near rounding."""
    rounding = torch.finfo(gap.dtype).eps ** (2.0 / 3.0)
    return gap / (gap.square() + rounding**2)
