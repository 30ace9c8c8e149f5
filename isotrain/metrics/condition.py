"""How far apart the large and the small variances of a cloud are. N rows, D dimensions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud, from_moments


@from_moments
def condition(x: Tensor | Cloud, quantile: float = 0.9, center: bool = True) -> Tensor:
    """λ₁/λ_q of the rows of `x [N, D]`: the largest variance over a small one; ≥ 1 = isotropic.

    λ_q is eigenvalue number ⌈q·r⌉, where r = min(N − 1, D) (min(N, D) without `center`) is the
    rank the rows allow. The usual condition number (q = 1, of which this is the square) is
    infinite or noise where rows are few; q = `quantile` = 0.9 leaves out the noisy end. Where
    λ_q is zero to rounding the value is 1/(D·eps), 5.9e12 for D = 768: read it as "at least".
    Unchanged by rotation, uniform scale and, with `center`, translation. Biased high for
    N ≲ 10·D. Rows without scatter give 1/(D·eps).

    Raises:
        ValueError: not `[N, D]`, N < 2, a NaN or infinity, or a quantile outside (0, 1].

    Ours: a condition number whose small end is not the last eigenvalue.

    >>> import torch
    >>> condition(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), quantile=1.0, center=False).item()
    9.0
    """
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile must be in (0, 1], got {quantile}; 0.9 is the default")
    cloud = Cloud.of(x)
    value_D = cloud.spectrum(center).value_D
    allowed = min(cloud.n - 1 if center else cloud.n, cloud.d)
    small = value_D[math.ceil(quantile * allowed) - 1]
    most = 1.0 / (cloud.d * torch.finfo(value_D.dtype).eps)
    return torch.where(small > 0, value_D[0] / torch.where(small > 0, small, 1.0), most)
