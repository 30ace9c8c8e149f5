"""Spectra, leading directions, noise floors. N embeddings, D dimensions, R directions."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.rows import finite_rows

EXACT_BELOW = 128  # sides up to this: the whole eigenproblem costs less than iterating
OVERSAMPLING = 13  # extra columns of the iterated subspace
CHECK_EVERY, MOST_ITERATIONS = 6, 36
RESIDUAL = 1e-3  # of each eigenpair, relative to its eigenvalue
CLEAR = 100.0  # times the rounding of eigenvalues: a floor that hides it
Number = Tensor | float


def spectrum_of(gram_SS: Tensor, width: int, most: int) -> Tensor:
    """Eigenvalues `[D]` of a Gram matrix of either side, falling, zero-padded to `width`.

    Those below D·eps·λ₁ are rounding and set to 0, so that both sides, and one pass or many,
    give the same spectrum; so are those past `most`. Differentiable.
    """
    value_S = torch.linalg.eigvalsh(gram_SS).flip(0)[: min(most, width)]
    threshold = width * torch.finfo(value_S.dtype).eps * value_S[0]
    value_S = torch.where(value_S > threshold, value_S, 0.0)
    return torch.nn.functional.pad(value_S, (0, width - len(value_S)))


def shares(weight_D: Tensor) -> Tensor:
    """Non-negative numbers divided by their sum; all zero where the sum is."""
    total = weight_D.sum()
    return weight_D / torch.where(total > 0, total, 1.0)


def entropy(share_D: Tensor) -> Tensor:
    """−Σ p·ln p in nats, with 0·ln 0 = 0."""
    positive_D = share_D > 0
    return 0.0 - (share_D * torch.where(positive_D, share_D, 1.0).log()).sum()


def evenness(trace: Tensor, squares: Tensor, width: int) -> Tensor:
    """IsoScore ((tr C)²/‖C‖²_F − 1)/(D − 1) of a covariance C `[D, D]`; in [0, 1], 1 = isotropic.

    Of `trace` = tr C and `squares` = ‖C‖²_F, as 0-d tensors, and D = `width`. D = 1 gives 1;
    otherwise C = 0 gives 0. With a finite gradient everywhere.

    Rudman et al. 2022, Eq. 5-7, without the eigenvalues.
    """
    if width == 1:
        return 1.0 + 0.0 * trace
    nonzero = squares > 0
    ratio = trace.square() / torch.where(nonzero, squares, 1.0)
    return torch.where(nonzero, ((ratio - 1.0) / (width - 1)).clamp(0.0, 1.0), 0.0)


class Eigenpairs(NamedTuple):
    """Eigenpairs of XᵀX or XXᵀ, the smaller of both (side S = min(N, D)), rising.

    Solved in float32, an eigenvalue up to 4·eps·√max(N, D)·λ₁ is taken for 0: up to 1e-5·λ₁, which
    real directions are below beside an outlier dimension. So if one of the first `n_needed` is, of
    N − 1 and D that there can be, it is solved in float64, with the mean subtracted again
    (`is_mean_0`). There 0 is what the rounding of the centred embeddings explains:
    max(N, D)·(8·eps32·max|x|)². A `floor` that will be added, 100 times the cut, makes it needless.
    docs/decisions/0037 says why.
    """

    value_GS: Tensor
    vector_GSS: Tensor
    zero_G1: Tensor  # eigenvalues up to this are rounding
    x_GND: Tensor  # X as solved, in float32 or float64


def eigenpairs(
    x_GND: Tensor, n_needed: int, is_mean_0: bool = True, divisor: int = 1, floor: Number = 0.0
) -> Eigenpairs:
    """`Eigenpairs` of centred embeddings `[..., N, D]`, of their Gram matrix over a divisor."""
    pairs, rank = _eigenpairs(x_GND, divisor), max(1, min(x_GND.shape[-2] - 1, n_needed))
    needed_GR = pairs.value_GS[..., -rank:] + floor / CLEAR
    is_done = x_GND.dtype != torch.float32 or bool((needed_GR > pairs.zero_G1).all())
    return pairs if is_done else _in_float64(x_GND, is_mean_0, divisor)


def _eigenpairs(x_GND: Tensor, divisor: int) -> Eigenpairs:
    (n, d), precision = x_GND.shape[-2:], torch.finfo(x_GND.dtype)
    gram_GSS = x_GND @ x_GND.mT if n <= d else x_GND.mT @ x_GND
    value_GS, vector_GSS = torch.linalg.eigh(gram_GSS / divisor)
    zero_G1 = 4.0 * precision.eps * max(n, d) ** 0.5 * value_GS[..., -1:].clamp_min(precision.tiny)
    return Eigenpairs(value_GS, vector_GSS, zero_G1, x_GND)


def _in_float64(x_GND: Tensor, is_mean_0: bool, divisor: int) -> Eigenpairs:
    x_GND = x_GND.double()
    x_GND = x_GND - x_GND.mean(dim=-2, keepdim=True) if is_mean_0 else x_GND
    pairs, size = _eigenpairs(x_GND, divisor), max(x_GND.shape[-2:])
    rounding_G = (8.0 * torch.finfo(torch.float32).eps * x_GND.abs().amax(dim=(-2, -1))).square()
    zero_G1 = torch.maximum(pairs.zero_G1, size / divisor * rounding_G[..., None])
    return pairs._replace(zero_G1=zero_G1)


def leading_directions(centred_ND: Tensor, n_directions: int, is_mean_0: bool = True) -> Tensor:
    """Orthonormal `[D, R]` basis of the leading principal directions of a centred cloud.

    A direction whose eigenvalue is 0 by `Eigenpairs` is a zero column. Signs are arbitrary.
    """
    k = min(*centred_ND.shape, n_directions)
    if k == 0:
        return centred_ND.new_zeros(centred_ND.shape[1], n_directions)
    value_S, vector_SS, zero_1, x_ND = eigenpairs(centred_ND, k, is_mean_0)
    is_low = len(x_ND) <= x_ND.shape[1]
    top_DR = x_ND.T @ vector_SS[:, -k:] if is_low else vector_SS[:, -k:]  # Xcᵀu = √λ·v
    basis_DR = _orthonormal(top_DR.flip(1), value_S[-k:].flip(0), zero_1, n_directions)
    return basis_DR.to(centred_ND.dtype)


def leading_directions_of_each(
    clouds: Sequence[Tensor], n_directions: int, rest_ND: Tensor | None, exact: bool
) -> list[Tensor]:
    """`leading_directions` of several centred clouds, large ones by iteration unless `exact`.

    With `rest_ND`, R, the list starts with those of the scatter Σ X_gᵀX_g + RᵀR: of the union, if R
    has further clouds and the offsets √n_g·(m_g − m) of all means. Large: a smaller side above 128.
    """
    max_side = EXACT_BELOW if 0 < n_directions <= EXACT_BELOW // 2 - OVERSAMPLING else math.inf
    large = [g for g, x in enumerate(clouds) if min(x.shape) > max_side and not exact]
    union = [] if rest_ND is None else [-1]
    basis_of: dict[int, Tensor | None] = {}  # by cloud; −1 = their union
    if large and len(large + union) > 1:
        scatters = [clouds[g].T @ clouds[g] for g in large]
        if rest_ND is not None:
            other_ND = torch.cat([*(x for g, x in enumerate(clouds) if g not in large), rest_ND])
            scatters.append(sum(scatters, other_ND.T @ other_ND))
        solutions = _subspace_iteration(torch.stack(scatters), n_directions)
        basis_of = dict(zip(large + union, solutions, strict=True))
    bases = []
    for g in [*union, *range(len(clouds))]:
        basis_DR = basis_of.get(g)
        if basis_DR is None:
            parts = [*clouds, rest_ND] if rest_ND is not None and g < 0 else [clouds[g]]
            basis_DR = leading_directions(torch.cat(parts), n_directions, is_mean_0=g >= 0)
        bases.append(basis_DR)
    return bases


def _subspace_iteration(scatter_GDD: Tensor, n_directions: int) -> list[Tensor | None]:
    """Leading eigenvectors of each scatter matrix, iterated together; None: not settled.

    Until all eigenpairs but the last, which only shows if anything is left, have a residual
    ‖Cv − λv‖ ≤ 1e-3·λ, for 36 rounds at most. On tokens of a trained encoder 12 do; the removed
    energy is then within 1e-6 of the exact one.
    """
    d = scatter_GDD.shape[1]
    start_DS = torch.randn(
        d, n_directions + OVERSAMPLING, generator=torch.Generator().manual_seed(0)
    )
    basis_GDS = start_DS.to(scatter_GDD).expand(len(scatter_GDD), -1, -1)
    scale_G = scatter_GDD.diagonal(dim1=1, dim2=2).sum(dim=1)  # keeps powers in range
    precision = torch.finfo(scatter_GDD.dtype)
    scatter_GDD = scatter_GDD / scale_G.clamp_min(precision.tiny)[:, None, None]
    for _ in range(MOST_ITERATIONS // CHECK_EVERY):
        for _ in range(CHECK_EVERY // 3):
            for _ in range(3):  # columns lean to the first direction, by (λ1/λ_S)³ at most
                basis_GDS = scatter_GDD @ basis_GDS
            basis_GDS = torch.linalg.qr(basis_GDS)[0]
        image_GDS = scatter_GDD @ basis_GDS
        value_GS, rotation_GSS = torch.linalg.eigh(basis_GDS.mT @ image_GDS)
        value_GR = value_GS[:, -n_directions:].flip(1)
        rotation_GSR = rotation_GSS[..., -n_directions:].flip(2)
        top_GDR = basis_GDS @ rotation_GSR
        residual_GR = (image_GDS @ rotation_GSR - top_GDR * value_GR[:, None]).norm(dim=1)
        zero_G1 = 4.0 * precision.eps * d**0.5 * value_GR[:, :1].clamp_min(precision.tiny)
        settled_G = (residual_GR <= RESIDUAL * value_GR)[:, :-1].all(dim=1)
        settled_G &= (value_GR > zero_G1).all(dim=1)  # else `eigenpairs` decides what is 0
        if bool(settled_G.all()):
            break
    solved = zip(top_GDR, value_GR, zero_G1, settled_G.tolist(), strict=True)
    return [
        _orthonormal(top_DR, value_R, zero, n_directions) if is_settled else None
        for top_DR, value_R, zero, is_settled in solved
    ]


def _orthonormal(top_DR: Tensor, value_R: Tensor, zero: Tensor, n_directions: int) -> Tensor:
    """Unit columns, those of an eigenvalue up to `zero` zeroed, padded to `n_directions`."""
    tiny, nonzero_R = torch.finfo(value_R.dtype).tiny, value_R > zero
    # columns of the Gram route are orthogonal up to rounding / (relative size of λ); those of 0
    # follow the others, which they cannot tilt
    unit_DR = top_DR / top_DR.norm(dim=0).clamp_min(tiny)
    unit_DR = torch.linalg.qr(torch.where(nonzero_R, unit_DR, 0.0))[0]
    basis_DR = top_DR.new_zeros(len(top_DR), n_directions)
    basis_DR[:, : len(value_R)] = torch.where(nonzero_R, unit_DR, 0.0)
    return basis_DR


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
    residual = (centred_ND.square().sum() - spread_R.sum()).clamp_min(0.0)
    dof = len(centred_ND) - 1
    bulk = residual / (centred_ND.shape[1] - n_directions).clamp_min(1)  # of Σ(x·v)²
    ratio_R = level * root(bulk / torch.where(spread_R > 0, spread_R, 1.0))
    ratio_R = ratio_R.clamp(max=1.0)
    share_R = torch.where(spread_R > 0, 1.0 - ratio_R, 0.0)
    return level * root(bulk / max(1, dof)), share_R


def root(x: Tensor) -> Tensor:
    """√x with gradient 0, not infinity, where x is 0."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def capped_basis(basis_DS: Tensor, rho: float, n_embeddings: float) -> Tensor:
    """The first R of R + 1 columns: at most floor(rho·(N − 1)), and at most rank − 1."""
    n_components = max(0, basis_DS.shape[1] - 1)
    cap = math.floor(rho * (n_embeddings - 1) + 1e-9)
    n_kept = (basis_DS.square().sum().round() - 1).clamp(max=cap)  # a tensor: no device sync
    mask_R = torch.arange(n_components, device=basis_DS.device) < n_kept
    return basis_DS[:, :n_components] * mask_R


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


class RunningCovariance:
    """Number, mean and scatter of the finite embeddings added so far, in float64.

    Sums are taken about the mean, so that a mean far from 0 costs no digits.
    """

    def __init__(self, width: int, device: torch.device | None = None) -> None:
        self.n = 0
        self.mean_D = torch.zeros(width, dtype=torch.float64, device=device)
        self.scatter_DD = torch.zeros(width, width, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, x_ND: Tensor) -> None:
        """Take in the embeddings without a NaN or infinity."""
        x_ND = finite_rows(x_ND.detach()).double()
        if len(x_ND) == 0:
            return
        n, mean_D = self.n + len(x_ND), x_ND.mean(dim=0)
        centred_ND, shift_D = x_ND - mean_D, mean_D - self.mean_D
        self.scatter_DD += centred_ND.T @ centred_ND
        self.scatter_DD += torch.outer(shift_D, shift_D) * (self.n * len(x_ND) / n)
        self.mean_D += shift_D * (len(x_ND) / n)
        self.n = n

    def covariance(self) -> Tensor:
        """Σ(x − m)(x − m)ᵀ/(N − 1) `[D, D]`; zeros for N < 2."""
        return self.scatter_DD / max(self.n - 1, 1)
