"""IsoScore against eigenvalues, the published formula and the published package."""

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
