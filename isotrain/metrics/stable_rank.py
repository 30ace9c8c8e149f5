"""Stable rank: total variance over the largest. N embeddings, D dimensions."""

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud


def stable_rank(x: Tensor | Cloud, center: bool = True) -> Tensor:
    """Σ σ²/σ₁² of `x [N, D]`, in directions; in [1, min(N − 1, D)], D = isotropic.

    σ are the singular values of `x`, centred (`center`) or as it is. The inverse of the first
    explained variance: it sees the strongest direction alone. Biased low for N ≲ 10·D, where σ₁ is
    too large. A cloud without scatter gives 0.

    Rudelson and Vershynin 2007; called NESum for eigenvalues.

    >>> import torch
    >>> round(stable_rank(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), center=False).item(), 6)
    1.111111
    """
    value_D = Cloud.of(x).spectrum(center)
    return value_D.sum() / torch.where(value_D[0] > 0, value_D[0], 1.0)
