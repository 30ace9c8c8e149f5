"""How far apart the large and the small variances of a cloud are. N embeddings, D dimensions."""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud


@checked
def condition(
    x: Tensor | Cloud,
    quantile: Annotated[float, Field(gt=0, le=1)] = 0.9,
    center: bool = True,
) -> Tensor:
    """λ₁/λ_q of `x [N, D]`: the largest variance over a small one; ≥ 1 = isotropic.

    λ_q is eigenvalue number ⌈q·r⌉, r = min(N − 1, D) the rank that N allows (min(N, D) without
    `center`). The usual condition number, of which q = 1 is the square, is infinite or noise for
    small N; q = `quantile` = 0.9 leaves out the noisy end. Where λ_q is zero to rounding, as
    without scatter, the value is 1/(D·eps), 5.9e12 for D = 768: read it as "at least". Biased high
    for N ≲ 10·D.

    Ours: a condition number whose small end is not the last eigenvalue.

    >>> import torch
    >>> condition(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), quantile=1.0, center=False).item()
    9.0
    """
    cloud = Cloud.of(x)
    value_D = cloud.spectrum(center)
    max_rank = min(cloud.n - 1 if center else cloud.n, cloud.d)
    small = value_D[math.ceil(quantile * max_rank) - 1]
    maximum = 1.0 / (cloud.d * torch.finfo(value_D.dtype).eps)
    return torch.where(small > 0, value_D[0] / torch.where(small > 0, small, 1.0), maximum)
