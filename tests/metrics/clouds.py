"""Seeded point clouds, and floats of what a metric returns."""

from __future__ import annotations

import torch
from hypothesis import settings

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=0.0, low=1.0, high=1.0):
    """Gaussian embeddings around `mean`; standard deviations rise from `low` to `high`."""
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(low, high, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def floats(found):
    """The values of a metric of several."""
    return {name: value.item() for name, value in found.items()}
