"""The shared core of the moment metrics: sums against NumPy, spectra once, nothing leaks."""

from functools import partial

import numpy as np
import pytest
import torch

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import spectrum_of
from isotrain.metrics.suite import find, suite
from tests import clouds

SHAPES = [(2, 1), (2, 9), (9, 10), (10, 10), (11, 10), (255, 7), (256, 7), (257, 7), (1000, 7)]
WIDE = [(127, 256), (128, 256), (129, 256), (300, 191), (300, 192), (300, 193), (400, 385)]
SPECTRAL = (
    "isoscore",
    "participation_ratio",
    "effective_rank",
    "spectral_entropy",
    "stable_rank",
    "explained_variance",
    "condition",
    "alpha_req",
)
rows = partial(clouds.cloud, mean=3.0, low=0.3, high=2.0)


def assert_close(found, wanted, rtol=1e-11):
    atol = rtol * np.abs(wanted).max()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("n", "d"), SHAPES + WIDE)
def test_sums_equal_numpy(n, d):
    x = rows(n, d)
    cloud, points = Cloud(x), x.numpy()
    y = points - points.mean(axis=0)
    norm = (y**2).sum(axis=1)
    assert_close(cloud.mean_D, points.mean(axis=0))
    assert_close(cloud.scatter_DD, y.T @ y)
    assert_close(cloud.shape_sums.square_D, (y**2).sum(axis=0))
    assert_close(cloud.shape_sums.fourth_D, (y**4).sum(axis=0))
    assert_close(cloud.shape_sums.norm_fourth, (norm**2).sum())
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    assert_close(cloud.unit_sums.sum_D, unit.sum(axis=0))
    assert_close(cloud.unit_sums.square_D, (unit**2).sum(axis=0))


@pytest.mark.parametrize(("n", "d"), SHAPES + WIDE[-1:])
def test_spectra_equal_the_singular_values(n, d):
    x = rows(n, d, seed=1)
    points = x.numpy()
    for spectrum, y, freedom in (
        (Cloud(x).centred, points - points.mean(axis=0), n - 1),
        (Cloud(x).uncentred, points, n),
    ):
        value = np.zeros(d)
        singular = np.linalg.svd(y, compute_uv=False)
        value[: len(singular)] = singular**2 / freedom
        assert_close(spectrum, value, rtol=1e-12)
        assert not bool(spectrum[min(freedom, d) :].any())


def test_rounding_below_the_cut_is_zero_and_signal_above_it_is_kept():
    eps = torch.finfo(torch.float64).eps
    diagonal = torch.tensor([1.0, 20 * eps, 4 * eps, 0.0], dtype=torch.float64)
    assert spectrum_of(torch.diag(diagonal), 4, 4).tolist() == [
        1.0,
        pytest.approx(20 * eps, rel=1e-6),
        0.0,  # not above D·eps·λ₁
        0.0,
    ]
    assert spectrum_of(torch.diag(-diagonal), 4, 4).tolist()[1:] == [0.0, 0.0, 0.0]


def test_input_is_left_alone_and_promoted_in_any_precision():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int64):
        x = (rows(300, 5, seed=3) * 10).to(dtype)
        kept = x.clone()
        cloud, exact = Cloud(x), Cloud(x.double())
        assert torch.equal(cloud.scatter_DD, exact.scatter_DD)
        assert torch.equal(cloud.rows, x.double())
        torch.testing.assert_close(cloud.mean_D, exact.mean_D, rtol=1e-14, atol=0.0)
        assert torch.equal(x, kept)


@pytest.mark.parametrize("scale", [1e-305, 1e-150, 1e-70, 1e70, 1e150, 1e300])
def test_extreme_entries_change_the_unit_and_nothing_else(scale):
    x = rows(30, 4, seed=4)
    cloud, plain = Cloud(x * scale), Cloud(x)
    assert plain.unit == 1.0
    factor = cloud.unit * scale
    torch.testing.assert_close(cloud.mean_D, plain.mean_D * factor, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(cloud.scatter_DD, plain.scatter_DD * factor**2, rtol=1e-11, atol=0.0)
    torch.testing.assert_close(cloud.centred, plain.centred * factor**2, rtol=1e-11, atol=0.0)
    assert cloud.has_scatter


@pytest.mark.parametrize("value", [1e-310, 1.7e308])
def test_the_ends_of_float64_give_finite_sums(value):
    """The sum of a few entries near the largest number, and entries below the smallest normal."""
    x = torch.tensor([[1.0, 0.5], [1.0, 0.25], [0.5, 1.0], [0.75, 0.5]], dtype=torch.float64)
    cloud = Cloud(x * value)
    assert bool(cloud.mean_D.isfinite().all())
    plain = Cloud(x).centred
    found = cloud.centred
    torch.testing.assert_close(found / found[0], plain / plain[0], rtol=1e-9, atol=0.0)


def test_complex_numbers_are_rejected():
    with pytest.raises(ValueError, match="a cloud is real"):
        Cloud(torch.ones(3, 2, dtype=torch.complex64))


# Sharing


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_a_suite_takes_each_spectrum_once(shape, monkeypatch):
    calls = []
    solve = torch.linalg.eigvalsh

    def counted(matrix):
        calls.append(matrix.shape)
        return solve(matrix)

    monkeypatch.setattr(torch.linalg, "eigvalsh", counted)
    x = rows(*shape)
    suite(x, SPECTRAL)
    assert calls == [(6, 6)]
    suite(x, [*SPECTRAL, "rankme"])
    assert calls == [(6, 6)] * 3  # rankme looks at the rows about the origin
    find("effective_rank")(x)
    find("stable_rank")(x)
    assert calls == [(6, 6)] * 5  # nothing is kept of a tensor
