"""Spectral entropy against SciPy's entropy of NumPy's eigenvalues."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from isotrain.metrics.effective_rank import effective_rank
from isotrain.metrics.spectral_entropy import spectral_entropy

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.1, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("center", [True, False])
def test_equals_the_entropy_of_eigenvalues(n, d, center):
    x = cloud(n, d, mean=0.7)
    points = x.numpy() - x.numpy().mean(axis=0) * center
    wanted = entropy(np.linalg.svd(points, compute_uv=False) ** 2) / math.log(d)
    found = spectral_entropy(x, center=center)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("k", "d"), [(1, 5), (2, 5), (5, 5), (3, 100)])
def test_k_even_directions(k, d):
    x = torch.nn.functional.pad(torch.cat([torch.eye(k), -torch.eye(k)]), (0, d - k))
    wanted = math.log(k) / math.log(d)
    assert spectral_entropy(x + 2.0).item() == pytest.approx(wanted, abs=1e-6)
    assert spectral_entropy(x, center=False).item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_below_the_logarithm_of_the_effective_rank(seed):
    x = cloud(40, 9, seed)
    assert spectral_entropy(x).item() < math.log(effective_rank(x).item()) / math.log(9)
    assert 0.0 < spectral_entropy(x).item() < 1.0


def test_few_rows_cannot_pass_their_number():
    x = torch.randn(8, 700, generator=torch.Generator().manual_seed(0))
    assert 0.95 < spectral_entropy(x).item() * math.log(700) / math.log(7) <= 1.0


def test_one_dimension_two_rows_and_no_scatter():
    assert spectral_entropy(cloud(5, 1)).item() == 1.0
    assert spectral_entropy(cloud(2, 9)).item() == pytest.approx(0.0, abs=1e-12)
    assert spectral_entropy(torch.full((8, 3), 0.1, dtype=torch.float64)).item() == 0.0
    assert spectral_entropy(torch.zeros(8, 3), center=False).item() == 0.0


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d, center):
    x = cloud(n, d, seed=3, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: spectral_entropy(rows, center=center), x)
