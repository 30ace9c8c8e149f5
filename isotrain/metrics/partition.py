"""Partition isotropy I(W). N embeddings, D dimensions, J directions."""

import math
from typing import Literal

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud

BLOCK = 1 << 19  # projections held at once: 4 MB, which stay in cache
ROWS = 256  # embeddings that are centred at once, likewise


@checked
def partition(
    x: Tensor | Cloud,
    signs: Literal["both", "as_is"] = "both",
    log: bool = True,
    directions: Tensor | None = None,
    precision: Literal["double", "mixed"] = "double",
) -> Tensor:
    """ln I(W) of `x [N, D]`; in (−∞, 0], 0 = isotropic (I itself for `log=False`).

    I(W) = min_c F(c) / max_c F(c), F(c) = Σ_i exp(c·x_i), over unit directions c: the eigenvectors
    of XᵀX with both signs, or the given `directions [D, J]`. In log space, so nothing overflows.
    For N < D the directions orthogonal to all embeddings count too: there F = N exactly. Depends on
    N and on scale: report both, and the value of a Gaussian cloud of the same N, D and rms norm
    (`partition_null`). With equal eigenvalues, the eigenvectors, and so the value, depend on the
    solver. The gradient holds the directions fixed, so it is always finite.

    `signs="as_is"` takes each direction once, as it comes: defined for given directions only, as
    the sign of an eigenvector is the solver's choice.

    `precision="mixed"` takes products of centred embeddings in float32 and puts the mean back in
    float64. With r the largest distance from the mean, ln I is off by less than 3e-7·max(r, 1) on
    given directions and 2e-6·max(r, 1) on eigenvectors (measured on 400 clouds). Not for r beyond
    1e4, nor where torch takes float32 products in TF32 or bfloat16.

    Raises:
        ValueError: as_is without directions; directions that are not unit columns `[D, J]`.

    Mu and Viswanath 2018, Eq. 5; Rajaee and Pilehvar 2021 (one sign, not in log space).

    >>> cross = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(partition(cross).item(), 6) + 0.0
    0.0
    """
    if signs == "as_is" and directions is None:
        raise ValueError(
            "signs='as_is' needs directions: the sign of an eigenvector is the solver's choice; "
            "pass directions=[D, J] or use signs='both'"
        )
    cloud = Cloud.of(x, min_rows=1)
    n, d = cloud.shape
    if directions is not None:
        directions = directions.to(cloud.x.device, torch.float64)
        if not bool(((directions.norm(dim=0) - 1.0).abs() <= 1e-3).all()):
            raise ValueError("directions must be unit columns; divide each by its norm")
    scale = 0.5 / cloud.shrink  # a power of two, so exact: avoids overflow of squares
    width = max(1, BLOCK // n)
    if precision == "mixed":
        width = max(64, width // 64 * 64)  # others take twice as long in float32
        centre_D = cloud.mean_D / (cloud.unit * scale)
        blocks = (x_BD.double() / scale - centre_D for x_BD in torch.split(cloud.x, ROWS))
        delta_ND = torch.cat([delta_BD.float() for delta_BD in blocks])
    else:
        delta_ND = cloud.rows / scale
        centre_D = delta_ND.new_zeros(d)
    direction_DJ = directions
    if direction_DJ is None:
        if precision == "mixed" and n >= d:
            gram_SS = _product(delta_ND.T, delta_ND).double() + n * torch.outer(centre_D, centre_D)
        else:
            gram_SS = cloud.uncentred_gram_SS
        direction_DJ = _eigenvectors(gram_SS.detach(), cloud, scale)
    parts = []
    for block_DJ in torch.split(direction_DJ, width, dim=1):
        product_NJ = _product(delta_ND, block_DJ.to(delta_ND.dtype))
        shift_J = centre_D @ block_DJ * scale
        parts.append(_log_sum_exp(product_NJ, scale) + shift_J)
        if signs == "both":
            parts.append(_log_sum_exp(-product_NJ, scale) - shift_J)
    if directions is None and direction_DJ.shape[1] < d:
        parts.append(centre_D.new_tensor([math.log(n)]))
    log_f = torch.cat(parts)
    value = (log_f.min() - log_f.max()).clamp(max=0.0)
    return value if log else value.exp()


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product in the precision of its factors, even under autocast."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


def _log_sum_exp(p_NJ: Tensor, scale: float) -> Tensor:
    """ln Σ_i exp(scale·p_ij), in float64; the exponentials in the precision of `p`."""
    largest_J = p_NJ.detach().amax(dim=0)
    # Past 1e30 every term but the largest is 0 with or without the bound, and float32 holds it.
    sum_J = (p_NJ - largest_J).mul_(min(scale, 1e30)).exp_().sum(dim=0)
    return sum_J.double().log() + largest_J.double() * scale


def _eigenvectors(gram_SS: Tensor, cloud: Cloud, scale: float) -> Tensor:
    """Eigenvectors `[D, J]` of XᵀX with a non-zero eigenvalue, by either Gram matrix."""
    n, d = cloud.shape
    value, direction_DJ = torch.linalg.eigh(gram_SS)
    if n >= d:
        return direction_DJ
    is_nonzero = value > value[-1] * n * torch.finfo(value.dtype).eps
    direction_DJ = (cloud.rows.detach() / scale).T @ direction_DJ[:, is_nonzero]
    direction_DJ = direction_DJ / direction_DJ.norm(dim=0)
    if bool((value[is_nonzero] < 1e-6 * value[-1]).any()):  # otherwise they are orthogonal to 1e-9
        direction_DJ, _ = torch.linalg.qr(direction_DJ)
    return direction_DJ
