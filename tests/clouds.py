"""Point clouds that tests draw. N embeddings, D dimensions."""

from __future__ import annotations

import torch
from torch import Tensor


def seeded(seed: int) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def cloud(*shape: int, seed: int = 0, mean: float = 0.3, dtype=torch.float64) -> Tensor:
    """Normal coordinates about `mean`; draws are in float64 whatever the type."""
    return (torch.randn(*shape, generator=seeded(seed), dtype=torch.float64) + mean).to(dtype)


def correlated(
    n: int, d: int, seed: int = 0, mean: float = 0.0, dtype=torch.float64, decay: float = 0.8
) -> Tensor:
    """Normal `[N, D]` with standard deviations 3, 3·decay, ... along rotated axes."""
    scale_D = 3.0 * decay ** torch.arange(d, dtype=torch.float64)
    axes_DD = torch.linalg.qr(cloud(d, d, seed=seed + 1000, mean=0.0))[0]
    return (cloud(n, d, seed=seed, mean=0.0) * scale_D @ axes_DD + mean).to(dtype)


def two_blobs(n: int = 60, d: int = 6, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Two far blobs with falling spectra, every second embedding of the one."""
    x_ND = cloud(n, d, seed=seed, mean=0.0) * 2.0 * 0.7 ** torch.arange(d, dtype=torch.float64)
    return (x_ND + torch.where(torch.arange(n) % 2 == 0, 6.0, -3.0)[:, None]).to(dtype)
