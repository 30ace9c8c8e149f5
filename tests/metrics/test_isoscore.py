"""IsoScore against eigenvalues, the published formula and the published package."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from IsoScore.IsoScore import IsoScore

from isotrain.geometry.spectra import evenness
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_star import isoscore_star
from isotrain.objectives.istar import istar
from tests import clouds

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (33, 32), (32, 33), (500, 4)]
cloud = partial(clouds.cloud, low=0.05, high=3.0)


def from_eigenvalues(x):
    value = np.linalg.svd(x.numpy() - x.numpy().mean(axis=0), compute_uv=False) ** 2
    return (value.sum() ** 2 / (value**2).sum() - 1.0) / (x.shape[1] - 1)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_is_the_participation_ratio_of_the_eigenvalues(n, d, seed):
    x = cloud(n, d, seed)
    assert isoscore(x).item() == pytest.approx(from_eigenvalues(x), abs=1e-12)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_equals_the_published_package(n, d):
    x = cloud(n, d, seed=3, mean=-2.0)
    assert isoscore(x).item() == pytest.approx(float(IsoScore(x.numpy())), abs=1e-6)


@pytest.mark.parametrize(("n", "tolerance"), [(32, 0.02), (64, 0.02), (277, 0.01), (1024, 0.01)])
def test_finite_sample_law_of_a_gaussian_cloud(n, tolerance):
    d = 768
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    freedom = n - 1
    law = (freedom * d / (freedom + d) - 1) / (d - 1)
    assert isoscore(x).item() == pytest.approx(law, rel=tolerance)


# Products in float32
@pytest.mark.parametrize(("n", "d"), [*SHAPES, (1000, 200), (4000, 64)])
@pytest.mark.parametrize("mean_norm", [0.0, 16_000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixed_precision_is_within_1e_6(n, d, mean_norm, dtype):
    x = (cloud(n, d, seed=12) + mean_norm / math.sqrt(d)).to(dtype)
    found = isoscore(x, precision="mixed")
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(isoscore(x).item(), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-150, 1e-40, 1e-25, 1e-15, 1e15, 1e20, 1e50, 1e150])
def test_mixed_precision_does_not_leave_the_range_of_float32(scale):
    x = cloud(200, 6, seed=14)
    found = isoscore(x * scale, precision="mixed")
    assert found.item() == pytest.approx(isoscore(x).item(), abs=1e-6)


def test_mixed_precision_has_a_gradient():
    x = cloud(60, 5, seed=18).requires_grad_()
    isoscore(x).backward()
    exact, x.grad = x.grad, None
    isoscore(x, precision="mixed").backward()
    torch.testing.assert_close(x.grad, exact, rtol=1e-4, atol=1e-7)


def test_ends_of_the_range_have_a_finite_gradient():
    for spectrum, value in (([1.0, 1, 1], 1.0), ([1.0, 0, 0], 0.0), ([0.0, 0, 0], 0.0)):
        x = torch.tensor(spectrum, requires_grad=True)
        found = evenness(x.sum(), x.square().sum(), 3)
        found.backward()
        assert found.item() == pytest.approx(value, abs=1e-6)
        assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("equal", [False, True])
def test_one_dimension_is_isotropic_for_all(equal):
    x = torch.full((6, 1), 2.0) if equal else torch.arange(6.0)[:, None]
    x.requires_grad_()
    loss = istar(x)
    loss.backward()
    assert torch.equal(x.grad, torch.zeros(6, 1))
    covariance = torch.ones(1, 1)
    scores = [isoscore(x), isoscore_star(x, covariance, 0.5), 1 - loss]
    assert [score.item() for score in scores] == [1.0] * 3
