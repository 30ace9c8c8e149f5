"""Partition isotropy I(W). N rows, D dimensions, J directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isotrain.geometry.rows import check_cloud


def partition(
    x: Tensor, signs: str = "both", log: bool = True, directions: Tensor | None = None
) -> Tensor:
    """ln I(W) of the rows of `x [N, D]`; in (−∞, 0], 0 = isotropic (I itself for `log=False`).

    I(W) = min_c F(c) / max_c F(c), F(c) = Σ_i exp(c·x_i), over unit directions c: the
    eigenvectors of XᵀX, taken with both signs, or the given `directions [D, J]`. All in log
    space, so nothing overflows. For N < D the directions orthogonal to all rows count too:
    there F = N exactly. Depends on N and on the scale of the rows: quote both with the value.
    Unchanged by rotation only.

    `signs="as_is"` takes each direction once, as it comes. The sign of an eigenvector is the
    solver's choice, so that form is defined for given directions only.

    Raises:
        ValueError: not `[N, D]`, N < 1, a NaN or infinity, `signs` other than both or as_is,
            as_is without directions, or directions that are not unit columns `[D, J]`.

    Mu and Viswanath 2018, Eq. 5; Rajaee and Pilehvar 2021 (one sign, not in log space).

    >>> cross = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(partition(cross).item(), 6) + 0.0
    0.0
    """
    if signs not in ("both", "as_is"):
        raise ValueError(f"signs must be both or as_is, got {signs!r}")
    if signs == "as_is" and directions is None:
        raise ValueError(
            "signs='as_is' needs directions: the sign of an eigenvector is the solver's choice; "
            "pass directions=[D, J] or use signs='both'"
        )
    x = check_cloud(x, min_rows=1)
    n, d = x.shape
    if directions is None:
        direction_DJ = _eigenvectors(x)
    else:
        direction_DJ = directions.to(x)
        if direction_DJ.ndim != 2 or direction_DJ.shape[0] != d or direction_DJ.shape[1] == 0:
            raise ValueError(f"directions must be [D, J] = [{d}, J], got {tuple(directions.shape)}")
        if not bool(((direction_DJ.norm(dim=0) - 1.0).abs() <= 1e-3).all()):
            raise ValueError("directions must be unit columns; divide each by its norm")
    projection_NJ = x @ direction_DJ
    log_f = torch.logsumexp(projection_NJ, dim=0)
    if signs == "both":
        log_f = torch.cat([log_f, torch.logsumexp(-projection_NJ, dim=0)])
    if directions is None and direction_DJ.shape[1] < d:
        log_f = torch.cat([log_f, log_f.new_tensor([math.log(n)])])
    value = (log_f.min() - log_f.max()).clamp(max=0.0)
    return value if log else value.exp()


def _eigenvectors(x_ND: Tensor) -> Tensor:
    """Eigenvectors `[D, J]` of XᵀX with a non-zero eigenvalue, by the smaller Gram side."""
    n, d = x_ND.shape
    if n >= d:
        direction_DJ: Tensor = torch.linalg.eigh(x_ND.T @ x_ND)[1]
        return direction_DJ
    value, vector = torch.linalg.eigh(x_ND @ x_ND.T)
    real = value > value[-1] * n * torch.finfo(value.dtype).eps
    direction_DJ = x_ND.T @ vector[:, real]
    direction_DJ, _ = torch.linalg.qr(direction_DJ / direction_DJ.norm(dim=0))
    return direction_DJ
