"""IsoScore* against eigenvalues and the published package."""

from functools import partial

import numpy as np
import pytest
import torch
from IsoScore.IsoScore import IsoScore_cov, istar

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_star import isoscore_star, isoscore_star_of_rows
from tests import clouds

SHAPES = [(2, 2), (5, 3), (7, 20), (20, 7), (20, 20), (300, 4)]
ZETAS = [0.0, 0.2, 0.75, 1.0]
cloud = partial(clouds.cloud, mean=1.0, low=0.3, high=2.0)


def covariance(d, seed=9):
    return torch.cov(cloud(3 * d + 2, d, seed).T)


def from_eigenvalues(x, reference, zeta):
    mixed = (1 - zeta) * np.cov(x.numpy(), rowvar=False) + zeta * reference.numpy()
    value = np.linalg.eigvalsh(mixed)
    return (value.sum() ** 2 / (value**2).sum() - 1) / (x.shape[1] - 1)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("zeta", ZETAS)
def test_equals_the_eigenvalues_of_the_shrunk_covariance(n, d, zeta):
    x, reference = cloud(n, d), covariance(d)
    found = isoscore_star(x, reference, zeta)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(from_eigenvalues(x, reference, zeta), abs=1e-12)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("zeta", ZETAS)
def test_equals_the_published_package(n, d, zeta):
    x, reference = cloud(n, d, seed=1), covariance(d, seed=2)
    # In evaluation the package copies its input; as a loss it takes the tensor itself.
    published = istar().IsoScore_star(x.clone(), reference, zeta, is_eval=False)
    assert isoscore_star(x, reference, zeta).item() == pytest.approx(published.item(), abs=1e-6)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_the_ends_are_isoscore_and_the_score_of_the_reference(n, d):
    x, reference = cloud(n, d, seed=3), covariance(d, seed=4)
    assert isoscore_star(x, reference, 0.0).item() == pytest.approx(isoscore(x).item(), abs=1e-13)
    published = IsoScore_cov(reference.numpy()).item()
    assert isoscore_star(x, reference, 1.0).item() == pytest.approx(published, abs=1e-6)
    assert isoscore_star(x, torch.eye(d), 1.0).item() == pytest.approx(1.0, abs=1e-14)


def test_the_weight_belongs_to_the_reference():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # all variance, 2, in the first dimension
    reference = torch.diag(torch.tensor([0.0, 2.0]))
    scores = [isoscore_star(x, reference, zeta).item() for zeta in (0.0, 0.25, 0.5, 1.0)]
    assert scores == pytest.approx([0.0, 1 / (0.75**2 + 0.25**2) - 1, 1.0, 0.0], abs=1e-14)


@pytest.mark.parametrize(("n", "d"), [(7, 20), (20, 7)])
def test_rows_as_reference(n, d):
    x, other = cloud(n, d, seed=5), cloud(30, d, seed=6)
    reference = torch.from_numpy(np.cov(other.numpy(), rowvar=False))
    for zeta in ZETAS:
        assert isoscore_star_of_rows(x, other, zeta).item() == pytest.approx(
            isoscore_star(x, reference, zeta).item(), abs=1e-13
        )
    assert isoscore_star_of_rows(x, other).item() == isoscore_star_of_rows(x, other, 0.5).item()


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_the_scale_of_the_reference_alone_gives_no_nan(scale):
    x, reference = cloud(20, 4), covariance(4)
    reference[0, 1] *= 1.0 + 1e-9  # rounding is symmetric enough at any scale
    alone = isoscore_star(x, reference, 1.0).item()
    assert isoscore_star(x, reference * scale, 1.0).item() == pytest.approx(alone)
    wanted = alone if scale > 1 else isoscore(x).item()
    assert isoscore_star(x, reference * scale, 0.5).item() == pytest.approx(wanted)


@pytest.mark.parametrize("zeta", ZETAS)
@pytest.mark.parametrize("scale", [0.0, 1e-200, 1.0, 1e200])  # of the rows; 0 = no scatter
def test_one_dimension_scores_one_with_a_gradient_of_zero(zeta, scale):
    for reference in (torch.zeros(1, 1), torch.ones(1, 1)):
        x = (cloud(5, 1) * scale).requires_grad_()
        score = isoscore_star(x, reference, zeta)
        score.backward()
        assert (score.item(), x.grad.tolist()) == (1.0, [[0.0]] * 5)


def test_errors():
    x, reference = cloud(6, 3), covariance(3)
    for other in (covariance(2), reference[:2]):
        with pytest.raises(ValueError, match=r"\[3, 3\]"):
            isoscore_star(x, other, 0.5)
    for row, column, value in ((0, 2, 1.0), (1, 1, float("inf")), (0, 0, float("nan"))):
        bad = reference.clone()
        bad[row, column] += value
        with pytest.raises(ValueError, match="finite, symmetric"):
            isoscore_star(x, bad, 0.5)
