"""Participation ratio against eigenvalues, closed forms and the law of Gaussian clouds."""

import numpy as np
import pytest
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.participation_ratio import participation_ratio

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (33, 32), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.1, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def from_singular_values(x, center):
    points = x.numpy() - x.numpy().mean(axis=0) * center
    value = np.linalg.svd(points, compute_uv=False) ** 2
    return value.sum() ** 2 / (value**2).sum()


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("center", [True, False])
def test_equals_the_singular_values(n, d, center):
    x = cloud(n, d, mean=0.4)
    found = participation_ratio(x, center=center)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(from_singular_values(x, center), rel=1e-12)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_is_isoscore_in_directions(n, d):
    x = cloud(n, d, seed=1, mean=-2.0)
    wanted = 1.0 + (d - 1) * isoscore(x).item()
    assert participation_ratio(x).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("k", "d"), [(1, 5), (2, 5), (5, 5), (3, 100)])
def test_k_even_directions_count_k(k, d):
    x = torch.nn.functional.pad(torch.cat([torch.eye(k), -torch.eye(k)]), (0, d - k))
    assert participation_ratio(x + 2.0).item() == pytest.approx(k, abs=1e-12)
    assert participation_ratio(x, center=False).item() == pytest.approx(k, abs=1e-12)


def test_the_mean_cone_is_a_direction_about_the_origin():
    x = cloud(200, 10, seed=2)
    assert participation_ratio(x + 1e4, center=False).item() == pytest.approx(1.0, abs=1e-6)
    assert participation_ratio(x + 1e4).item() == pytest.approx(participation_ratio(x).item())


@pytest.mark.parametrize(("n", "d", "n_draws"), [(16, 64, 40), (64, 64, 20), (1000, 64, 6)])
def test_finite_sample_law_of_a_gaussian_cloud(n, d, n_draws):
    """The two traces of a Wishart matrix have E tr² and E‖·‖² that give n·d/(n + d) nearly."""
    found = torch.stack(
        [
            participation_ratio(
                torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
            )
            for seed in range(n_draws)
        ]
    )
    freedom = n - 1
    # E (tr W)² / E tr(W²) for W of `freedom` degrees: exact up to the ratio's own 1/(n·d).
    law = (freedom * d + 2) / (freedom + d + 1)
    error = (found.std() / n_draws**0.5).item()
    assert abs(found.mean().item() - law) <= 4.0 * error + 2e-3 * law
    assert law == pytest.approx(freedom * d / (freedom + d), rel=0.03)


def test_two_rows_and_no_scatter():
    assert participation_ratio(cloud(2, 9)).item() == pytest.approx(1.0, abs=1e-12)
    assert participation_ratio(torch.full((8, 3), 0.1, dtype=torch.float64)).item() == 0.0
    assert participation_ratio(torch.zeros(8, 3), center=False).item() == 0.0
    assert participation_ratio(torch.ones(8, 3), center=False).item() == pytest.approx(1.0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d, center):
    x = cloud(n, d, seed=3, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: participation_ratio(rows, center=center), x)
