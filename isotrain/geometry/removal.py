"""Removal of R principal directions, with their gradient. T = min(N, D), B = T − R others."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotrain.geometry.levels import noise_floor


def removal_matrix(
    centred_ND: Tensor, n_removed: int, clip: bool = False, level: float = 1.0
) -> Tensor:
    """The symmetric matrix M `[D, D]` of a removal y = z − z @ M.

    M = V·diag(r)·Vᵀ, V the `n_removed` leading principal directions of a centred cloud X; those
    whose eigenvalue λ of XᵀX is within rounding of zero do not count. Projection has r = 1;
    `clip` has r_i = 1 − level·√(b/λ_i), at least 0, with b the noise floor of `noise_floor`.

    The gradient to X goes through V, λ and b, once (no double backward); that of the mean is the
    caller's. It is made of the divided differences (f_i − f_j)/(λ_i − λ_j) of Daleckii and Krein, f
    being r on the removed directions and 0 elsewhere. Only a gap g between a removed and another
    direction divides, as g/(g² + (ε·λ_1)²) with ε = eps^(2/3) of the dtype, so equal eigenvalues
    give a finite gradient where that of `torch.linalg.eigh` is NaN. At a tie between a removed and
    another direction M jumps and has no derivative.

    M does not depend on the scale of X: where `has_scatter` says that there is none, remove
    nothing. `centred_ND`: finite, of sum zero; the result has its dtype. Call it outside of
    autocast.

    >>> x = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> removal_matrix(x, 1).diagonal().tolist()
    [1.0, 0.0]
    >>> removal_matrix(x, 1, clip=True).diagonal().tolist()
    [0.75, 0.0]
    """
    matrix_DD: Tensor = _Removal.apply(centred_ND, n_removed, clip, level)  # type: ignore[no-untyped-call]
    return matrix_DD


class _Removal(torch.autograd.Function):
    """The eigenproblem of the smaller side, and divided differences instead of its backward."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, n_removed: int, clip: bool, level: float) -> Tensor:
        n, d = x_ND.shape
        if n <= d:
            value_T, vector_NT = torch.linalg.eigh(x_ND @ x_ND.T)
            root_DT = x_ND.T @ vector_NT  # V·√Λ
        else:
            value_T, vector_DT = torch.linalg.eigh(x_ND.T @ x_ND)
            root_DT = vector_DT * value_T.clamp_min(0.0).sqrt()
        value_T, root_DT = value_T.flip(0), root_DT.flip(1)
        precision = torch.finfo(x_ND.dtype)
        # λ_1, and 0 if N = 0. Directions within rounding of zero as in leading_directions.
        largest = value_T[:1].sum().clamp_min(precision.tiny)
        real_T = value_T > 4.0 * precision.eps * max(n, d) ** 0.5 * largest
        n_real = int(real_T[:n_removed].sum())
        basis_DR = torch.linalg.qr(root_DT[:, :n_real])[0]
        share_R = noise_floor(x_ND, basis_DR, level)[1] if clip else value_T.new_ones(n_real)
        ctx.level = level
        ctx.save_for_backward(x_ND, basis_DR, share_R, value_T, root_DT[:, n_real:], largest)
        matrix_DD: Tensor = (basis_DR * share_R) @ basis_DR.T
        return matrix_DD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_DD: Tensor) -> tuple[Tensor, None, None, None]:
        x_ND, basis_DR, share_R, value_T, root_DB, largest = ctx.saved_tensors
        d = x_ND.shape[1]
        n_real = len(share_R)
        level_R, level_B = (value_T / largest).split([n_real, len(value_T) - n_real])
        image_DR = 0.5 * (gradient_DD + gradient_DD.T) @ basis_DR
        inner_RR = basis_DR.T @ image_DR
        image_DR = image_DR - basis_DR @ inner_RR
        # Removed with another direction: r/(λ_i − λ_j) = r/λ_i·(1 + λ_j/(λ_i − λ_j)), whose first
        # term is all there is in the null space, and the second needs no unit vectors.
        other_BR = root_DB.T @ image_DR * _inverse(level_R - level_B[:, None]) / largest
        half_DR = (image_DR + root_DB @ other_BR) * (share_R / level_R)
        # Removed with removed, b = level² times the noise floor: √b/(√λ_i·√λ_j·(√λ_i + √λ_j)), and
        # 0 for a projection. A clamped direction (r = 0) is like one of the others.
        kept_R, root_R = 1.0 - share_R, level_R.sqrt()
        smooth_RR = kept_R / (root_R[:, None] * (root_R[:, None] + root_R))
        clamped_RR = (share_R - share_R[:, None]) * _inverse(level_R - level_R[:, None])
        above_R = share_R > 0
        within_RR = torch.where(above_R & above_R[:, None], smooth_RR, clamped_RR)
        half_DR = (half_DR + basis_DR @ (0.5 * within_RR * inner_RR)) / largest
        # Through the mean eigenvalue outside, b/level²: dr_i/db = −1/(2·√(b·λ_i)).
        moved_R = above_R & (kept_R > 0)  # at b = 0 coordinates outside are 0, and so is their part
        slope_R = torch.where(moved_R, -1.0 / torch.where(moved_R, kept_R, 1.0), 0.0) / level_R
        slope_R = ctx.level**2 * slope_R
        slope = (slope_R * inner_RR.diagonal()).sum() / largest / max(1, d - n_real)
        # dL/dS = half·Vᵀ + V·halfᵀ + slope/2·(I − V·Vᵀ) and dL/dX = 2·X·dL/dS.
        along_NR = x_ND @ basis_DR
        across_NR = 2.0 * (x_ND @ half_DR) - slope * along_NR
        gradient_ND = across_NR @ basis_DR.T + 2.0 * (along_NR @ half_DR.T) + slope * x_ND
        return gradient_ND, None, None, None


def _inverse(gap: Tensor) -> Tensor:
    """1/gap, damped where the gap, in units of λ_1, is near rounding."""
    rounding: float = torch.finfo(gap.dtype).eps ** (2.0 / 3.0)
    return gap / (gap.square() + rounding**2)
