"""Partial whitening with an exponent set by the spectrum. N embeddings, D width.

λ are the eigenvalues of the covariance C (divisor n = N − 1), λ̄ = tr C/D their mean.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.rows import has_scatter

N_HALVINGS = 40  # bisection steps: the exponent to 1e-12


class TemperStats(NamedTuple):
    """A partial whitening map, its exponent, and counters of the fit."""

    centre_D: Tensor
    matrix_DD: Tensor
    alpha: Tensor
    counters: dict[str, Tensor]


def corrected_spectrum(value_D: Tensor, n_embeddings: int) -> Tensor:
    """Eigenvalues `[D]` corrected for the sampling spread at N embeddings, with mean 1.

    λ' = 1 + k·(λ/λ̄ − 1), k in [0, 1) such that Σλ'²/D estimates D·tr Σ²/(tr Σ)², Σ the covariance
    of the embeddings' distribution. For Gaussian embeddings (moments of a Wishart matrix)

        tr Σ² ≈ n²/((n − 1)(n + 2))·(tr C² − (tr C)²/n),   tr Σ ≈ tr C.

    So isotropic embeddings give ones, up to chance, for any N and D. Up to scale, it equals `zca`
    with ε = (1 − k)/k. For N = 2, k = 0.

    >>> corrected_spectrum(torch.tensor([4.0, 0.0, 0.0, 0.0]), 2).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    d, n = len(value_D), n_embeddings - 1
    unit_D = value_D / value_D.mean()
    square = unit_D.square().mean()
    excess = n * n / (max(n - 1, 1) * (n + 2)) * (square - d / n) - 1.0
    spread = square - 1.0
    share = excess.clamp_min(0.0) / torch.where(spread > 0, spread, 1.0)
    return 1.0 + share.clamp_max(1.0).sqrt() * (unit_D - 1.0)


def evenness_of_power(value_D: Tensor, power: Tensor) -> Tensor:
    """Participation ratio of λ^power over D, in (0, 1]; falls with `power` ≥ 0.

    >>> round(evenness_of_power(torch.tensor([1.0, 3.0]), torch.tensor(1.0)).item(), 5)  # 4²/10/2
    0.8
    """
    log_D = value_D.log()
    weight_D = ((log_D - log_D.amax()) * power).exp()
    return weight_D.sum().square() / weight_D.square().sum() / len(value_D)


def temper_exponent(value_D: Tensor, target: float) -> Tensor:
    """The smallest α in [0, 1] at which λ^(1−α) has the participation ratio `target`·D.

    For positive eigenvalues, by bisection: the ratio rises with α, to D at α = 1. 0-d; below the
    exact α by rounding at most, above it by at most 1e-12 (in float64).

    >>> value = torch.tensor([16.0, 1.0, 1.0], dtype=torch.float64)
    >>> 1 - round(temper_exponent(value, 2 / 3).item(), 6)  # 16^p = 4: 6²/(16 + 2) = 2 of 3
    0.5
    """
    low, high = value_D.new_zeros(()), value_D.new_ones(())
    is_even = evenness_of_power(value_D, high) >= target
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2.0
        reaches = evenness_of_power(value_D, 1.0 - middle) >= target
        low, high = torch.where(reaches, low, middle), torch.where(reaches, middle, high)
    return torch.where(is_even, 0.0, high)


def tempering_map(x_ND: Tensor, target: float) -> TemperStats:
    """Fit the mean of the embeddings, a partial whitening of the residual, and its exponent α.

    The matrix is U diag(λ'^(−α/2)) Uᵀ·s with the eigenvectors U and `corrected_spectrum` λ' of C,
    α = `temper_exponent` of λ', and s such that tr C is kept. α = 0 gives the identity. A cloud
    without scatter gets the identity and no mean, and is counted. The mean carries a gradient, the
    matrix does not. The eigenproblem is that of the smaller side.
    """
    n, d = x_ND.shape
    eye_DD = torch.eye(d, dtype=x_ND.dtype, device=x_ND.device)
    passes = not has_scatter(x_ND.detach())
    counters = {"rows_passed_through": torch.tensor(float(n if passes else 0))}
    if passes:
        zero = x_ND.new_zeros(())
        return TemperStats(x_ND.new_zeros(d), eye_DD, zero, counters | {"alpha": zero})
    mean_D = x_ND.mean(dim=0)
    centred_ND = (x_ND - mean_D).detach()
    centred_ND = centred_ND / centred_ND.abs().amax()  # squares neither overflow nor underflow
    value_S, basis_DS = _eigenpairs(centred_ND)
    spectrum_D = torch.nn.functional.pad(value_S, (0, d - len(value_S))).double()
    corrected_D = corrected_spectrum(spectrum_D, n)
    alpha = temper_exponent(corrected_D, target)
    factor_D = corrected_D.pow(-alpha / 2.0)
    scale = (spectrum_D.sum() / (spectrum_D * factor_D.square()).sum()).sqrt()
    factor_D = (scale * factor_D).to(x_ND.dtype)
    rest = factor_D[-1]  # of the directions outside the basis, which have no variance
    matrix_DD = rest * eye_DD + (basis_DS * (factor_D[: len(value_S)] - rest)) @ basis_DS.T
    alpha = alpha.to(x_ND.dtype)
    return TemperStats(mean_D, matrix_DD, alpha, counters | {"alpha": alpha})


def _eigenpairs(centred_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Descending eigenvalues of the covariance (0 within rounding), orthonormal directions."""
    n, d = centred_ND.shape
    gram_SS = centred_ND.T @ centred_ND if n > d else centred_ND @ centred_ND.T
    value_S, basis = (x.flip(-1) for x in torch.linalg.eigh(gram_SS))
    rounding = 4.0 * torch.finfo(value_S.dtype).eps * max(n, d) ** 0.5 * value_S[0]
    real_S = value_S > rounding
    if n <= d:  # XᵀU = √λ·V
        basis = centred_ND.T @ basis / torch.where(real_S, value_S, 1.0).sqrt() * real_S
    return torch.where(real_S, value_S, 0.0) / (n - 1), basis
