"""Leading principal directions. G clouds, N embeddings, D dimensions, R directions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

EXACT_BELOW = 128  # sides up to this: the whole eigenproblem costs less than iterating
OVERSAMPLING = 13  # extra columns of the iterated subspace
CHECK_EVERY, MOST_ITERATIONS = 6, 36
RESIDUAL = 1e-3  # of each eigenpair, relative to its eigenvalue


def leading_directions(centred_ND: Tensor, n_directions: int) -> Tensor:
    """Orthonormal `[D, R]` basis of the leading principal directions of a centred cloud.

    The exact eigenproblem of the smaller side: the Gram matrix `[N, N]` for N ≤ D, the
    covariance `[D, D]` otherwise. A direction whose eigenvalue is within rounding of zero, and
    every column past the rank, is a zero column: it removes nothing. Signs are arbitrary.
    """
    n, d = centred_ND.shape
    k = min(n, d, n_directions)
    if k == 0:
        return centred_ND.new_zeros(d, n_directions)
    if n <= d:
        value, vector = torch.linalg.eigh(centred_ND @ centred_ND.T)
        top_DR = centred_ND.T @ vector[:, -k:]  # Xcᵀu = √λ·v
    else:
        value, vector = torch.linalg.eigh(centred_ND.T @ centred_ND)
        top_DR = vector[:, -k:]
    return _orthonormal(top_DR.flip(1), value[-k:].flip(0), max(n, d), n_directions)


def leading_directions_of_each(
    clouds: Sequence[Tensor], n_directions: int, rest_ND: Tensor | None, exact: bool
) -> list[Tensor]:
    """`leading_directions` of several centred clouds, large ones by iteration unless `exact`.

    With `rest_ND` the list starts with the directions of everything together: scatter
    Σ X_gᵀX_g + RᵀR. With R further clouds and the offsets √n_g·(m_g − m) of all means, that is
    the scatter of the union.

    Clouds whose smaller side exceeds 128 iterate together on their scatter matrices (subspace
    iteration), until all eigenpairs but the last, which only shows if anything is left, have a
    residual ‖Cv − λv‖ ≤ 1e-3·λ; one that has not settled after 36 rounds is solved exactly. On
    tokens of a trained encoder 12 rounds do; the removed energy is then within 1e-6 of the exact
    one.
    """
    if n_directions == 0:
        everything = [] if rest_ND is None else [rest_ND]
        return [x.new_zeros(x.shape[1], 0) for x in (*everything, *clouds)]
    small = EXACT_BELOW if n_directions + OVERSAMPLING <= EXACT_BELOW // 2 else math.inf
    large = [g for g, x in enumerate(clouds) if min(x.shape) > small and not exact]
    union = [] if rest_ND is None else [-1]
    found: dict[int, Tensor | None] = {}  # by cloud; −1 is all of them together
    if large and len(large + union) > 1:
        scatters = [clouds[g].T @ clouds[g] for g in large]
        if rest_ND is not None:
            others = torch.cat([*(x for g, x in enumerate(clouds) if g not in large), rest_ND])
            scatters.append(sum(scatters, others.T @ others))
        iterated = _subspace_iteration(torch.stack(scatters), n_directions)
        found = dict(zip(large + union, iterated, strict=True))
    bases = []
    for g in [*union, *range(len(clouds))]:
        basis_DR = found.get(g)
        if basis_DR is None:
            rows = [*clouds, rest_ND] if rest_ND is not None and g < 0 else [clouds[g]]
            basis_DR = leading_directions(torch.cat(rows), n_directions)
        bases.append(basis_DR)
    return bases


def random_directions(
    x_ND: Tensor, n_sets: int, n_directions: int, generator: torch.Generator | None
) -> Tensor:
    """Orthonormal bases `[G, D, R]` of subspaces drawn uniformly, of the type and device of `x`.

    They follow from the seed of the generator, whatever was drawn from it since.

    >>> v_DR = random_directions(torch.zeros(1, 3), 1, 2, torch.Generator().manual_seed(0))[0]
    >>> bool(torch.allclose(v_DR.T @ v_DR, torch.eye(2), atol=1e-6))
    True
    """
    if generator is None:
        raise ValueError("random directions are drawn: pass generator=torch.Generator()")
    size = n_sets, x_ND.shape[1], n_directions
    own = torch.Generator().manual_seed(generator.initial_seed())
    drawn_GDR = torch.randn(size, generator=own, dtype=torch.float64)
    basis_GDR: Tensor = torch.linalg.qr(drawn_GDR)[0].to(x_ND)
    return basis_GDR


def _subspace_iteration(scatter_GDD: Tensor, n_directions: int) -> list[Tensor | None]:
    """Leading eigenvectors of each matrix; None where the iteration did not settle."""
    d = scatter_GDD.shape[1]
    start_DS = torch.randn(
        d, n_directions + OVERSAMPLING, generator=torch.Generator().manual_seed(0)
    )
    basis_GDS = start_DS.to(scatter_GDD).expand(len(scatter_GDD), -1, -1)
    scale_G = scatter_GDD.diagonal(dim1=1, dim2=2).sum(dim=1)  # keeps powers in range
    scatter_GDD = (
        scatter_GDD / scale_G.clamp_min(torch.finfo(scatter_GDD.dtype).tiny)[:, None, None]
    )
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
        settled_G = (residual_GR <= RESIDUAL * value_GR)[:, :-1].all(dim=1)
        if bool(settled_G.all()):
            break
    return [
        _orthonormal(top_DR, value_R, d, n_directions) if settled else None
        for top_DR, value_R, settled in zip(top_GDR, value_GR, settled_G.tolist(), strict=True)
    ]


def _orthonormal(top_DR: Tensor, value_R: Tensor, size: int, n_directions: int) -> Tensor:
    """Unit columns, those of a zero eigenvalue zeroed, padded to `n_directions`."""
    precision = torch.finfo(value_R.dtype)
    real_R = value_R > 4.0 * precision.eps * size**0.5 * value_R[0].clamp_min(precision.tiny)
    # Columns of the Gram route are orthogonal up to rounding / (relative size of λ); one QR
    # of the few columns makes them orthonormal. Zeroed columns follow the real ones, so they
    # cannot tilt them.
    unit_DR = top_DR / top_DR.norm(dim=0).clamp_min(precision.tiny)
    unit_DR = torch.linalg.qr(torch.where(real_R, unit_DR, 0.0))[0]
    basis_DR = top_DR.new_zeros(len(top_DR), n_directions)
    basis_DR[:, : len(value_R)] = torch.where(real_R, unit_DR, 0.0)
    return basis_DR
