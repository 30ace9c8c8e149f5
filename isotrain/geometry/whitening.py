"""Whitening maps, whole and partial, and inverse square roots of covariances.

G groups of S dimensions, N embeddings, D width. C = XᵀX/(N − 1) of centred X, its eigenvalues λ
with mean λ̄ = tr C/D. A root takes centred X `[G, N, S]` and a floor, added to every eigenvalue.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from isotrain.geometry.rows import has_scatter
from isotrain.geometry.spectra import eigenpairs, leading_directions

Root = Callable[[Tensor, Tensor], Tensor]
N_HALVINGS = 40  # bisection steps: the exponent to 1e-12


@dataclass(frozen=True)
class WhiteningStats:
    """A whitening map, and counters of the fit."""

    centre_D: Tensor
    matrix_DD: Tensor
    counters: dict[str, Tensor]


def check_group_size(group_size: int | None, width: int) -> None:
    """Raise a ValueError unless groups of that many dimensions make up the width."""
    if group_size is not None and group_size < width and width % group_size:
        below = max(size for size in range(1, group_size) if width % size == 0)
        raise ValueError(
            f"group_size must divide the width, got {group_size} of {width}; use {below}, or null "
            "for one group"
        )


def apply_whitening(x_ND: Tensor, stats: WhiteningStats) -> Tensor:
    """Whitened embeddings (x − centre) @ matrix, `[N, D]`."""
    return (x_ND - stats.centre_D) @ stats.matrix_DD


def whitening_map(
    x_ND: Tensor,
    epsilon: float,
    keep_scale: bool,
    root: Root,
    group_size: int | None = None,
    differentiable: bool = False,
) -> WhiteningStats:
    """The mean of the embeddings, the whitening matrix of the residual, and counters.

    `root` gets each group of `group_size` neighbouring dimensions, and the floor ε·λ̄ with the
    λ̄ of all D dimensions; covariances between groups are left out. With `keep_scale` the matrix
    is multiplied by √λ̄. A cloud without scatter (one embedding, or equal ones) gets the
    identity and is counted. The mean carries a gradient, the matrix only if `differentiable`.
    """
    n, d = x_ND.shape
    passes = not has_scatter(x_ND.detach())
    counters = {"rows_passed_through": torch.tensor(float(n if passes else 0))}
    if passes:
        eye_DD = torch.eye(d, dtype=x_ND.dtype, device=x_ND.device)
        return WhiteningStats(x_ND.new_zeros(d), eye_DD, counters)
    mean_D = x_ND.mean(dim=0)
    centred_ND = x_ND - mean_D if differentiable else (x_ND - mean_D).detach()
    largest = centred_ND.detach().abs().amax()  # divided out: squares neither overflow nor vanish
    unit_ND = centred_ND / largest
    mean_value = unit_ND.square().sum() / ((n - 1) * d)
    group_GNS = unit_ND.reshape(n, -1, min(d, group_size or d)).transpose(0, 1)
    root_GSS = root(group_GNS, epsilon * mean_value)
    eye_GG = x_ND.new_ones(len(root_GSS)).diag()  # puts the groups on a block diagonal
    matrix_DD = (eye_GG[:, None, :, None] * root_GSS[:, :, None]).reshape(d, d)
    matrix_DD = matrix_DD * mean_value.sqrt() if keep_scale else matrix_DD / largest
    return WhiteningStats(mean_D, matrix_DD, counters)


def inverse_root(x_GNS: Tensor, floor: Tensor) -> Tensor:
    """(C + floor·1)^−1/2 `[G, S, S]` by the exact eigenproblem: symmetric, positive.

    Of the smaller side, `[N, N]` for N ≤ S. With floor 0 directions whose eigenvalue is within
    rounding of zero have the factor 0 (the pseudo-inverse). Give it detached X: the backward of
    `eigh` is not finite for repeated eigenvalues.
    """
    n, s = x_GNS.shape[1:]
    pairs = eigenpairs(x_GNS, s, divisor=n - 1, floor=floor)
    floor = floor.to(pairs.x_GND.dtype)
    is_null_GT = (pairs.value_GS <= pairs.zero_G1) & (floor == 0)  # T: the smaller side
    value_GT = torch.where(is_null_GT, torch.inf, pairs.value_GS.clamp_min(0.0) + floor)
    if n > s:
        factor_GS = value_GT.rsqrt()
        root_GSS = (pairs.vector_GSS * factor_GS[:, None]) @ pairs.vector_GSS.mT
        return root_GSS.to(x_GNS.dtype)
    # f(C) = f(0)·1 + Xᵀ g(XXᵀ) X with g(λ) = (f(λ) − f(0))/λ, which needs no division by λ.
    root_GN, floor_root = value_GT.sqrt(), floor.sqrt()
    weight_GN = -1.0 / (root_GN * floor_root * (root_GN + floor_root))
    weight_GN = torch.where(floor > 0, weight_GN, root_GN**-3) / (n - 1)
    image_GSN = pairs.x_GND.mT @ pairs.vector_GSS
    null_SS = image_GSN.new_ones(s).diag() * torch.where(floor > 0, floor.rsqrt(), 0.0)
    return (null_SS + (image_GSN * weight_GN[:, None]) @ image_GSN.mT).to(x_GNS.dtype)


def newton_inverse_root(x_GNS: Tensor, floor: Tensor, n_iterations: int) -> Tensor:
    """(C + floor·1)^−1/2 `[G, S, S]` by matrix products alone. Differentiable.

    The coupled Newton–Schulz iteration from Y = A, Z = 1 with A = (C + floor·1)/‖C + floor·1‖_F:
    M = (3·1 − Z Y)/2, Y ← Y M, Z ← M Z; then Z → A^−1/2. The smallest eigenvalue of A grows by
    2.25 an iteration until it is near 1, so ln(1/λ_min(A))/0.81 + 5 iterations are enough.
    """
    n, s = x_GNS.shape[1:]
    eye_SS = x_GNS.new_ones(s).diag()
    sum_GSS = x_GNS.mT @ x_GNS / (n - 1) + floor * eye_SS
    norm_G11 = sum_GSS.square().sum(dim=(1, 2), keepdim=True).sqrt()
    y_GSS, z_GSS = sum_GSS / norm_G11, eye_SS.expand_as(sum_GSS)
    for _ in range(n_iterations):
        m_GSS = 1.5 * eye_SS - 0.5 * z_GSS @ y_GSS
        y_GSS, z_GSS = y_GSS @ m_GSS, m_GSS @ z_GSS
    return z_GSS / norm_G11.sqrt()


def principal_root(
    x_1ND: Tensor, floor: Tensor, n_components: int, axes_DR: Tensor | None = None
) -> Tensor:
    """U diag((λ + floor)^−1/2) `[1, D, D]` of the leading directions, further columns 0.

    Columns are in falling order of λ, the largest entry of each positive; past the rank of X, 0.
    With orthonormal `axes_DR`, U diag((λ + floor)^−1/2) Q with the Q of `rotation_towards`.
    """
    x_ND = x_1ND[0]
    basis_DR = principal_directions(x_ND, n_components)
    value_R = (x_ND @ basis_DR).square().sum(dim=0) / (len(x_ND) - 1)
    factor_R = torch.where(value_R > 0, (value_R + floor).rsqrt(), 0.0)
    root_DR = basis_DR * factor_R
    if axes_DR is not None:
        root_DR = root_DR @ rotation_towards(axes_DR, basis_DR)
    return torch.nn.functional.pad(root_DR, (0, len(root_DR) - n_components))[None]


def principal_directions(centred_ND: Tensor, n_directions: int) -> Tensor:
    """`leading_directions`, the largest entry of each positive."""
    basis_DR = leading_directions(centred_ND, n_directions)
    largest_1R = basis_DR.gather(0, basis_DR.abs().argmax(dim=0, keepdim=True))
    return basis_DR * largest_1R.sign()


def rotation_towards(axes_DR: Tensor, basis_DR: Tensor) -> Tensor:
    """The rotation Q `[R, R]` that brings U·Q nearest to orthonormal axes (Procrustes).

    The polar factor of Uᵀ·axes. Columns of U past its rank are 0, and so are those rows of Q.
    """
    rank = int(basis_DR.square().sum().round())
    rotation_SR = basis_DR[:, :rank].T @ axes_DR
    if len(axes_DR) != axes_DR.shape[1]:  # else the rows are orthonormal already
        rotation_SR = _polar_factor(rotation_SR)
    return torch.nn.functional.pad(rotation_SR, (0, 0, 0, basis_DR.shape[1] - rank))


def followed_axes(centred_ND: Tensor, axes_DR: Tensor | None, n_components: int) -> Tensor:
    """Orthonormal axes `[D, R]` of the leading directions U: U·Q, as near to `axes` as they can be.

    Without axes, Q = 1. A cloud with fewer than R directions leaves the other axes in place, as
    far as those directions allow.
    """
    basis_DR = principal_directions(centred_ND, n_components)
    if axes_DR is None:
        axes_DR, rotation_RR = torch.eye(*basis_DR.shape).to(basis_DR), basis_DR.any(dim=0).diag()
        rotation_RR = rotation_RR.to(basis_DR)
    else:
        rotation_RR = rotation_towards(axes_DR, basis_DR)
    idle_DR = axes_DR - axes_DR @ rotation_RR.T @ rotation_RR
    idle_DR = idle_DR - basis_DR @ (basis_DR.T @ idle_DR)
    return _polar_factor(basis_DR @ rotation_RR + idle_DR)


def _polar_factor(x_AB: Tensor) -> Tensor:
    """The nearest matrix with orthonormal rows or columns."""
    left, _, right = torch.linalg.svd(x_AB, full_matrices=False)
    return left @ right


@dataclass(frozen=True)
class TemperStats:
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
    pairs = eigenpairs(centred_ND, d)
    value_S, basis = pairs.value_GS.flip(-1), pairs.vector_GSS.flip(-1)
    nonzero_S = value_S > pairs.zero_G1
    if n <= d:  # XᵀU = √λ·V
        basis = pairs.x_GND.T @ basis / torch.where(nonzero_S, value_S, 1.0).sqrt() * nonzero_S
    return torch.where(nonzero_S, value_S, 0.0) / (n - 1), basis.to(centred_ND.dtype)
