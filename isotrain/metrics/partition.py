"""Partition isotropy I(W). N embeddings, D dimensions, J directions."""

import math
from typing import Literal

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud

BLOCK = 1 << 19  # projections held at once: 4 MB, which stay in cache


@checked
def partition(
    x: Tensor | Cloud,
    signs: Literal["both", "as_is"] = "both",
    log: bool = True,
    directions: Tensor | None = None,
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
    scaled_ND = cloud.rows / scale
    direction_DJ = directions if directions is not None else _eigenvectors(cloud, scale)
    parts = []
    for block_DJ in torch.split(direction_DJ, max(1, BLOCK // n), dim=1):
        product_NJ = scaled_ND @ block_DJ
        parts.append(_log_sum_exp(product_NJ, scale))
        if signs == "both":
            parts.append(_log_sum_exp(-product_NJ, scale))
    if directions is None and direction_DJ.shape[1] < d:
        parts.append(scaled_ND.new_tensor([math.log(n)]))
    log_f = torch.cat(parts)
    value = (log_f.min() - log_f.max()).clamp(max=0.0)
    return value if log else value.exp()


def _log_sum_exp(p_NJ: Tensor, scale: float) -> Tensor:
    """ln Σ_i exp(scale·p_ij)."""
    largest_J = p_NJ.detach().amax(dim=0)
    sum_J = (p_NJ - largest_J).mul_(scale).exp_().sum(dim=0)
    return sum_J.log() + largest_J * scale


def _eigenvectors(cloud: Cloud, scale: float) -> Tensor:
    """Eigenvectors `[D, J]` of XᵀX with a non-zero eigenvalue, by either Gram matrix."""
    n, d = cloud.shape
    value, direction_DJ = torch.linalg.eigh(cloud.uncentred_gram_SS.detach())
    if n >= d:
        return direction_DJ
    is_nonzero = value > value[-1] * n * torch.finfo(value.dtype).eps
    direction_DJ = (cloud.rows.detach() / scale).T @ direction_DJ[:, is_nonzero]
    direction_DJ = direction_DJ / direction_DJ.norm(dim=0)
    if bool((value[is_nonzero] < 1e-6 * value[-1]).any()):  # otherwise they are orthogonal to 1e-9
        direction_DJ, _ = torch.linalg.qr(direction_DJ)
    return direction_DJ
