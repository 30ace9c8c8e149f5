"""IsoScore* against eigenvalues and the published package."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from IsoScore.IsoScore import IsoScore_cov, istar

from isotrain.geometry.cloud import Cloud
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_star import isoscore_star, isoscore_star_of_rows
from tests.metrics.clouds import light

SHAPES = [(2, 2), (5, 3), (7, 20), (20, 7), (20, 20), (300, 4)]
ZETAS = [0.0, 0.2, 0.75, 1.0]


def cloud(n, d, seed=0, mean=1.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


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


@given(st.integers(2, 20), st.integers(2, 12), st.floats(0.0, 1.0), st.integers(0, 10_000))
@light
def test_invariances_and_range(n, d, zeta, seed):
    generator = torch.Generator().manual_seed(seed)
    x, reference = cloud(n, d, seed), covariance(d, seed + 1)
    rotation, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    value = isoscore_star(x, reference, zeta).item()
    assert 0.0 <= value <= 1.0
    for rows, target in (
        (x + 10.0, reference),
        (x[torch.randperm(n, generator=generator)], reference),
        (x @ rotation, rotation.T @ reference @ rotation),
        (x * 50.0, reference * 2500.0),
    ):
        assert isoscore_star(rows, target, zeta).item() == pytest.approx(value, abs=1e-11)


def test_the_scale_of_the_rows_alone_counts():
    x, reference = cloud(20, 5, seed=7), covariance(5)
    assert abs(isoscore_star(x * 3, reference, 0.5) - isoscore_star(x, reference, 0.5)) > 1e-3


def as_function(reference, zeta):
    return lambda rows: isoscore_star(rows, reference, zeta)


@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4), (5, 5)])
@pytest.mark.parametrize("zeta", [0.0, 0.6])
def test_gradient_equals_differences(n, d, zeta):
    x = cloud(n, d, seed=8).requires_grad_()
    assert torch.autograd.gradcheck(as_function(covariance(d), zeta), x)


def test_gradient_for_equal_eigenvalues_and_duplicate_rows():
    even = torch.cat([torch.eye(4), -torch.eye(4)]).double() * 1.5
    even[:, 3] *= 0.5  # three equal eigenvalues, inside the range
    double = cloud(3, 4, seed=9).repeat(2, 1)
    for x in (even, double, double[:4]):
        assert torch.autograd.gradcheck(
            as_function(torch.eye(4, dtype=torch.float64), 0.3), x.clone().requires_grad_()
        )


def test_gradient_is_finite_without_scatter():
    x = torch.full((6, 3), 0.1, dtype=torch.float64, requires_grad=True)
    isoscore_star(x, torch.zeros(3, 3), 0.5).backward()
    assert bool(x.grad.isfinite().all())


def test_gradient_reaches_a_reference_that_asks_for_it():
    reference = covariance(4).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c: isoscore_star(cloud(6, 4), (c + c.T) / 2, 0.4), reference
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_constant_rows_leave_the_reference(value):
    x = torch.full((50, 4), value, dtype=torch.float64)
    assert isoscore_star(x, torch.eye(4), 0.0).item() == pytest.approx(0.0, abs=1e-9)
    assert isoscore_star(x, torch.eye(4), 0.5).item() == pytest.approx(1.0, abs=1e-9)
    assert isoscore_star(x, torch.zeros(4, 4), 1.0).item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_other_types_are_promoted(dtype):
    x, reference = (cloud(20, 5) * 10).to(dtype), covariance(5)
    wanted = isoscore_star(x.double(), reference, 0.5).item()
    assert isoscore_star(x, reference, 0.5).item() == pytest.approx(wanted, abs=1e-13)
    single = isoscore_star(x, reference.float(), 0.5)
    assert single.dtype == torch.float64
    assert single.item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e-140, 1e140])
@pytest.mark.parametrize("n", [4, 20])
def test_extreme_scales(scale, n):
    x = cloud(n, 6)
    wanted = isoscore_star_of_rows(x, x.flip(1)).item()
    assert isoscore_star_of_rows(x * scale, x.flip(1) * scale).item() == pytest.approx(wanted)


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_the_scale_of_the_reference_alone_gives_no_nan(scale):
    x, reference = cloud(20, 4), covariance(4)
    alone = isoscore_star(x, reference, 1.0).item()
    assert isoscore_star(x, reference * scale, 1.0).item() == pytest.approx(alone)
    wanted = alone if scale > 1 else isoscore(x).item()
    assert isoscore_star(x, reference * scale, 0.5).item() == pytest.approx(wanted)


def test_mean_of_norm_16000_and_moments():
    x, reference = cloud(200, 16), covariance(16)
    wanted = isoscore_star(x, reference, 0.5).item()
    assert isoscore_star(x + 4000.0, reference, 0.5).item() == pytest.approx(wanted, abs=1e-9)
    known = Cloud.from_moments(Cloud(x).moments)
    assert isoscore_star(known, reference, 0.5).item() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("zeta", ZETAS)
@pytest.mark.parametrize("scale", [0.0, 1e-200, 1.0, 1e200])  # of the rows; 0 = no scatter
def test_one_dimension_scores_one_with_a_gradient_of_zero(zeta, scale):
    for reference in (torch.zeros(1, 1), torch.ones(1, 1)):
        x = (cloud(5, 1) * scale).requires_grad_()
        score = isoscore_star(x, reference, zeta)
        score.backward()
        assert (score.item(), x.grad.tolist()) == (1.0, [[0.0]] * 5)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_scale_of_rows_without_weight_is_nothing(scale):
    x, reference = cloud(20, 4), covariance(4)
    alone = isoscore_star(x, reference, 1.0).item()
    assert isoscore_star(x * scale, reference, 1.0).item() == pytest.approx(alone)


def test_errors():
    x, reference = cloud(6, 3), covariance(3)
    for zeta in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"shrinkage must be in \[0, 1\]"):
            isoscore_star(x, reference, zeta)
    with pytest.raises(ValueError, match=r"\[3, 3\], got \(2, 2\)"):
        isoscore_star(x, covariance(2), 0.5)
    lopsided = reference.clone()
    lopsided[0, 2] += 1.0
    infinite, missing = reference.clone(), reference.clone()
    infinite[1, 1], missing[0, 0] = float("inf"), float("nan")
    for bad in (lopsided, infinite, missing):
        with pytest.raises(ValueError, match="finite and symmetric"):
            isoscore_star(x, bad, 0.5)
    x[4, 0] = float("nan")
    with pytest.raises(ValueError, match="row 4"):
        isoscore_star(x, reference, 0.5)
    with pytest.raises(ValueError, match="row 4"):
        isoscore_star_of_rows(cloud(6, 3), x)
    with pytest.raises(ValueError, match="at least 2 rows"):
        isoscore_star(cloud(1, 3), reference, 0.5)
    with pytest.raises(ValueError, match=r"\[N, D\]"):
        isoscore_star(torch.zeros(3), reference, 0.5)
