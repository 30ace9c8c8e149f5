"""Stable rank against NumPy's norms and the edge of the spectrum of noise."""

import numpy as np
import pytest
import torch

from isotrain.metrics.explained_variance import explained_variance
from isotrain.metrics.stable_rank import stable_rank

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.1, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("center", [True, False])
def test_is_frobenius_over_operator_norm(n, d, center):
    x = cloud(n, d, mean=0.7)
    points = x.numpy() - x.numpy().mean(axis=0) * center
    wanted = (np.linalg.norm(points) / np.linalg.norm(points, ord=2)) ** 2
    found = stable_rank(x, center=center)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(wanted, rel=1e-12)
    first = explained_variance(x, [1], center=center)["1"]
    assert found.item() == pytest.approx(1.0 / first.item(), rel=1e-12)


@pytest.mark.parametrize(("n", "d"), [(400, 200), (200, 400), (3000, 100)])
def test_noise_has_the_edge_of_marchenko_and_pastur(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    freedom = n - 1
    law = d / (1.0 + (d / freedom) ** 0.5) ** 2  # trace d over the edge of the spectrum
    assert stable_rank(x).item() == pytest.approx(law, rel=0.06)


def test_closed_forms():
    x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    assert stable_rank(x, center=False).item() == pytest.approx(10 / 9)
    even = torch.cat([torch.eye(4), -torch.eye(4)]) + 5.0
    assert stable_rank(even).item() == pytest.approx(4.0, rel=1e-12)
    assert stable_rank(cloud(2, 9)).item() == pytest.approx(1.0, abs=1e-12)


def test_no_scatter():
    assert stable_rank(torch.full((8, 3), 0.1, dtype=torch.float64)).item() == 0.0
    assert stable_rank(torch.zeros(8, 3), center=False).item() == 0.0


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d, center):
    x = cloud(n, d, seed=3, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: stable_rank(rows, center=center), x)
