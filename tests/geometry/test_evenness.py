"""The kernel of IsoScore, and that all who use it agree."""

from __future__ import annotations

import pytest
import torch

from isotrain.geometry.spectrum import evenness
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_star import isoscore_star
from isotrain.objectives.istar import istar


def published(spectrum):
    """The five steps of Rudman et al. 2022 on the eigenvalues."""
    d = len(spectrum)
    normed = d**0.5 * spectrum / spectrum.norm()
    defect = (normed - 1).norm() / (2 * (d - d**0.5)) ** 0.5
    share = (d - defect**2 * (d - d**0.5)) ** 2 / d**2
    return (d * share - 1) / (d - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 5, 40])
def test_equals_the_published_steps(d, dtype):
    spectrum = torch.rand(d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    spectrum = spectrum.to(dtype)
    found = evenness(spectrum.sum(), spectrum.square().sum(), d)
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert found.item() == pytest.approx(published(spectrum).item(), abs=tolerance)


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


def test_all_agree_on_one_cloud():
    x = torch.randn(30, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = x * torch.arange(1, 8)
    scores = [isoscore(x), isoscore_star(x, torch.eye(7), 0.0), 1 - istar(x)]
    assert [s.item() for s in scores] == pytest.approx([scores[0].item()] * 3, abs=1e-12)
    assert 0.1 < scores[0].item() < 0.9
