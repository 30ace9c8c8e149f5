"""IsoScore against eigenvalues, the published formula and the published package."""

import math

import numpy as np
import pytest
import torch
from IsoScore.IsoScore import IsoScore

from isotrain.metrics.isoscore import isoscore

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (33, 32), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.rand(d, generator=generator, dtype=torch.float64) * 3.0 + 0.05
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def eigenvalues(x):
    centred = x.double().numpy() - x.double().numpy().mean(axis=0)
    return np.linalg.svd(centred, compute_uv=False) ** 2 / (len(x) - 1)


def from_eigenvalues(x):
    value = eigenvalues(x)
    return (value.sum() ** 2 / (value**2).sum() - 1.0) / (x.shape[1] - 1)


def five_steps(x):
    """Rudman et al. 2022: reorient, diagonal, normalise, defect, rescale."""
    d = x.shape[1]
    points = x.double().numpy()
    axes = np.linalg.eigh(np.cov(points, rowvar=False))[1]
    variance = np.diag(np.cov(points @ axes, rowvar=False))
    normalised = math.sqrt(d) * variance / np.linalg.norm(variance)
    defect = np.linalg.norm(normalised - 1.0) / math.sqrt(2.0 * (d - math.sqrt(d)))
    return ((d - defect**2 * (d - math.sqrt(d))) ** 2 - d) / (d * (d - 1))


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_is_the_participation_ratio_of_the_eigenvalues(n, d, seed):
    x = cloud(n, d, seed)
    assert isoscore(x).item() == pytest.approx(from_eigenvalues(x), abs=1e-12)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_is_the_published_five_step_formula(n, d):
    x = cloud(n, d, seed=2, mean=3.0)
    assert isoscore(x).item() == pytest.approx(five_steps(x), abs=1e-9)


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


@pytest.mark.parametrize(("k", "d"), [(1, 5), (2, 5), (5, 5), (3, 100)])
def test_k_even_dimensions_of_d_score_k_minus_one_over_d_minus_one(k, d):
    x = torch.cat([torch.eye(k), -torch.eye(k)])
    x = torch.nn.functional.pad(x, (0, d - k)) * 7.0 + 2.0
    assert isoscore(x).item() == pytest.approx((k - 1) / (d - 1), abs=1e-12)


def test_one_dimension_scores_one():
    assert isoscore(cloud(9, 1)).item() == 1.0


@pytest.mark.parametrize("n", [2, 3, 1000, 50_000])
@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_constant_rows_score_zero(n, value):
    assert isoscore(torch.full((n, 5), value, dtype=torch.float64)).item() == 0.0


def test_two_rows_use_one_dimension():
    assert isoscore(cloud(2, 10, seed=6)).item() == pytest.approx(0.0, abs=1e-12)


# Products in float32


@pytest.mark.parametrize(("n", "d"), [*SHAPES, (1000, 200), (4000, 64)])
@pytest.mark.parametrize("mean_norm", [0.0, 16_000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixed_precision_is_within_1e_6(n, d, mean_norm, dtype):
    x = (cloud(n, d, seed=12) + mean_norm / math.sqrt(d)).to(dtype)
    found = isoscore(x, precision="mixed")
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(isoscore(x).item(), abs=1e-6)


def test_mixed_precision_with_a_dominating_dimension():
    x = cloud(600, 50, seed=13)
    x[:, 7] *= 3000.0
    x[:, 9] += 1e5
    assert isoscore(x, precision="mixed").item() == pytest.approx(isoscore(x).item(), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-150, 1e-40, 1e-25, 1e-15, 1e15, 1e20, 1e50, 1e150])
def test_mixed_precision_does_not_leave_the_range_of_float32(scale):
    x = cloud(200, 6, seed=14)
    found = isoscore(x * scale, precision="mixed")
    assert found.item() == pytest.approx(isoscore(x).item(), abs=1e-6)


@pytest.mark.parametrize("value", [0.1, -16_000.3])
def test_mixed_precision_of_constant_rows_and_duplicates(value):
    constant = torch.full((900, 5), value, dtype=torch.float64)
    assert isoscore(constant, precision="mixed").item() == 0.0
    x = cloud(25, 6, seed=15).repeat(40, 1)
    assert isoscore(x, precision="mixed").item() == pytest.approx(isoscore(x).item(), abs=1e-6)


def test_the_published_package_on_float32_rows_is_no_nearer():
    """What the package computes with float32 rows is what `mixed` stands beside."""
    x = cloud(500, 32, seed=16, mean=2.0).float()
    exact = isoscore(x.double()).item()
    assert float(IsoScore(x.numpy())) == pytest.approx(exact, abs=1e-5)
    assert isoscore(x, precision="mixed").item() == pytest.approx(exact, abs=1e-6)


def test_the_published_package_takes_rows_first():
    """(N, d), not (d, N): the transposed call gives another number without an error."""
    x = cloud(40, 6, seed=17)
    assert float(IsoScore(x.numpy())) == pytest.approx(isoscore(x).item(), abs=1e-6)
    assert abs(float(IsoScore(x.T.numpy())) - isoscore(x).item()) > 0.01


def test_mixed_precision_has_a_gradient():
    x = cloud(60, 5, seed=18).requires_grad_()
    isoscore(x).backward()
    exact, x.grad = x.grad, None
    isoscore(x, precision="mixed").backward()
    torch.testing.assert_close(x.grad, exact, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("precision", ["single", "", None])
def test_another_precision_is_refused(precision):
    with pytest.raises(ValueError, match="precision must be double or mixed"):
        isoscore(cloud(5, 3), precision=precision)
