"""Effective rank against NumPy's singular values and the figures of the methods table."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from isotrain.metrics.effective_rank import effective_rank

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (33, 32), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.1, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def by_numpy(x, center=True, power=1):
    points = x.double().numpy()
    points = points - points.mean(axis=0) * center
    singular = np.linalg.svd(points, compute_uv=False)[: min(len(x) - center, x.shape[1])]
    return math.exp(entropy(singular**power))


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("center", [True, False])
def test_equals_the_entropy_of_singular_values(n, d, center):
    x = cloud(n, d, mean=0.7)
    found = effective_rank(x, center=center)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(by_numpy(x, center), rel=1e-10)


@pytest.mark.parametrize(("n", "anchor"), [(32, 30.8), (277, 262.0)])
def test_noise_of_width_768(n, anchor):
    x = torch.randn(n, 768, generator=torch.Generator().manual_seed(n))
    value = effective_rank(x).item()
    assert value == pytest.approx(by_numpy(x), rel=1e-10)
    assert value == pytest.approx(anchor, rel=5e-3)
    assert value < n - 1
    assert abs(value - by_numpy(x, power=2)) > 0.005 * anchor  # weights are σ, not λ


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_even_directions_count_k(k):
    x = torch.nn.functional.pad(torch.cat([torch.eye(k), -torch.eye(k)]), (0, 5 - k)) * 3.0
    assert effective_rank(x + 1.0).item() == pytest.approx(k, abs=1e-6)
    assert effective_rank(x, center=False).item() == pytest.approx(k, abs=1e-6)


def test_closed_form_of_two_directions():
    # σ in the ratio 3 : 1
    x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    wanted = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert effective_rank(x).item() == pytest.approx(wanted, rel=1e-12)


def test_rounding_is_no_direction():
    """Rows on a plane, far away: the other 18 eigenvalues are noise and count for nothing."""
    generator = torch.Generator().manual_seed(1)
    plane = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    axes, _ = torch.linalg.qr(torch.randn(20, 2, generator=generator, dtype=torch.float64))
    x = plane @ axes.T
    assert effective_rank(x).item() == pytest.approx(by_numpy(plane), rel=1e-9)
    assert 1.0 < effective_rank(x).item() < 2.0


def test_two_rows_and_no_scatter():
    assert effective_rank(cloud(2, 9)).item() == pytest.approx(1.0, abs=1e-12)
    assert effective_rank(torch.full((8, 3), 0.1, dtype=torch.float64)).item() == 0.0
    assert effective_rank(torch.zeros(8, 3), center=False).item() == 0.0
    assert effective_rank(torch.ones(8, 3), center=False).item() == pytest.approx(1.0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d, center):
    x = cloud(n, d, seed=3, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: effective_rank(rows, center=center), x)


def test_gradient_is_finite_for_duplicates_and_equal_singular_values():
    for rows in (cloud(3, 4).repeat(2, 1), torch.cat([torch.eye(4), -torch.eye(4)]).double()):
        x = rows.requires_grad_()
        effective_rank(x).backward()
        assert bool(x.grad.isfinite().all())
