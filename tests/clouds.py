"""Seeded point clouds, and floats of what a metric returns. N embeddings, D dimensions."""

import torch
from hypothesis import settings
from torch import Tensor

light = settings(max_examples=25)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def cloud(n, d, seed=0, mean=0.0, low=1.0, high=1.0):
    """Gaussian embeddings around `mean`; standard deviations rise from `low` to `high`."""
    scale_D = torch.linspace(low, high, d, dtype=torch.float64)
    return torch.randn(n, d, generator=seeded(seed), dtype=torch.float64) * scale_D + mean


def with_a_tail(n: int, seed: int = 0) -> Tensor:
    """Float32 embeddings of 16 dimensions, of which the last varies most, far from zero."""
    scale_D = torch.linspace(0.2, 3.0, 16)
    scale_D[-1] = 12.0
    return torch.randn(n, 16, generator=seeded(seed)) * scale_D + 1.5


def with_a_flat_tail(n: int, d: int, seed: int = 0) -> Tensor:
    """Float32 embeddings far from zero: six strong directions, and all others equally weak."""
    scale_D = torch.ones(d)
    scale_D[:6] = torch.tensor([8.0, 6.0, 4.0, 3.0, 2.5, 2.0])
    axes_DD = torch.linalg.qr(normal(d, d, mean=0.0, dtype=torch.float32))[0]
    return normal(n, d, seed=seed + 1, mean=0.0, dtype=torch.float32) * scale_D @ axes_DD + 0.3


def uneven(n=60, d=6, seed=0, mean=0.5):
    return cloud(n, d, seed, mean, low=0.3, high=2.0)


def islands(n, d, n_groups, seed=0, mean=0.5, n_islands=3, noise=1.0):
    """Groups of many sizes around a vector each, in clusters far apart: x, groups, clusters."""
    generator = seeded(seed)
    group_GD = torch.randn(n_groups, d, generator=generator, dtype=torch.float64) + mean
    groups = (torch.rand(n, generator=generator) ** 2 * n_groups).long()
    groups[:2] = 0
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    island_KD = 20.0 * torch.randn(n_islands, d, generator=generator, dtype=torch.float64)
    cluster_N = torch.randint(max(1, n_islands), (n,), generator=generator)
    x = group_GD[groups] + noise * noise_ND
    return (x + island_KD[cluster_N] if n_islands else x), groups, cluster_N


def blobs(n, d, k, seed=0, apart=4.0):
    """Embeddings about one of k centres each, and the number of its centre."""
    generator = seeded(seed)
    centre_KD = apart * torch.randn(k, d, generator=generator, dtype=torch.float64)
    owner_N = torch.randint(k, (n,), generator=generator)
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return centre_KD[owner_N] + noise_ND, owner_N


def normal(*shape: int, seed: int = 0, mean: float = 0.3, dtype=torch.float64) -> Tensor:
    """Normal coordinates about `mean`; draws are in float64 whatever the type."""
    return (torch.randn(*shape, generator=seeded(seed), dtype=torch.float64) + mean).to(dtype)


def correlated(
    n: int, d: int, seed: int = 0, mean: float = 0.0, dtype=torch.float64, decay: float = 0.8
) -> Tensor:
    """Normal `[N, D]` with standard deviations 3, 3·decay, ... along rotated axes."""
    scale_D = 3.0 * decay ** torch.arange(d, dtype=torch.float64)
    axes_DD = torch.linalg.qr(normal(d, d, seed=seed + 1000, mean=0.0))[0]
    return (normal(n, d, seed=seed, mean=0.0) * scale_D @ axes_DD + mean).to(dtype)


def two_blobs(n: int = 60, d: int = 6, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Two far blobs with falling spectra, every second embedding of the one."""
    x_ND = normal(n, d, seed=seed, mean=0.0) * 2.0 * 0.7 ** torch.arange(d, dtype=torch.float64)
    return (x_ND + torch.where(torch.arange(n) % 2 == 0, 6.0, -3.0)[:, None]).to(dtype)


def floats(found):
    """The values of a metric of several."""
    return {name: value.item() for name, value in found.items()}
