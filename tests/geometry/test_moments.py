"""Moments of parts, merged, and a running covariance, against those of all rows together."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.moments import Moments, RunningCovariance, empty_moments, merged
from tests.clouds import light, normal


def rows(n, d, seed=0, mean_norm=0.0):
    return normal(n, d, seed=seed, mean=mean_norm / d**0.5)


def moments(x):
    return Cloud(x, min_rows=1).moments if len(x) else empty_moments(x.shape[1])


def literal(x):
    """Every sum of the definition, in extended precision."""
    x = x.numpy().astype(np.longdouble)
    mean = x.mean(axis=0)
    y = x - mean
    norm = (y**2).sum(axis=1)
    length = np.sqrt((x**2).sum(axis=1, keepdims=True))
    unit = x / np.where(length > 0, length, 1)
    sums = (len(x), mean, y.T @ y, (y**3).sum(0), (y**4).sum(0), norm @ y, (norm**2).sum())
    return Moments(*(np.asarray(part) for part in (*sums, unit.sum(0), (unit**2).sum(0))))


def assert_same(found, wanted, tolerance=1e-12):
    """Relative to what the sum would be without cancellation of signs."""
    n = float(wanted.n)
    spread = (float(np.trace(np.asarray(wanted.scatter_DD))) / max(n, 1.0)) ** 0.5
    powers = {"scatter_DD": 2, "cube_D": 3, "fourth_D": 4, "norm_cube_D": 3, "norm_fourth": 4}
    for name in Moments._fields:
        left, right = (np.asarray(getattr(m, name), dtype=np.float64) for m in (found, wanted))
        scale = n * spread ** powers[name] if name in powers else max(np.abs(right).max(), 1.0)
        assert left.shape == right.shape, name
        assert np.abs(left - right).max() <= tolerance * scale, name


@given(
    st.integers(2, 60),
    st.integers(1, 6),
    st.lists(st.integers(0, 60), max_size=5),
    st.sampled_from([0.0, 5.0, 16_000.0]),
    st.integers(0, 10_000),
)
@light
def test_any_cut_gives_the_moments_of_all_rows(n, d, cuts, mean_norm, seed):
    x = rows(n, d, seed, mean_norm)
    places = sorted(min(cut, n) for cut in cuts)
    parts = [x[a:b] for a, b in zip([0, *places], [*places, n], strict=True)]
    together = merged(*(moments(part) for part in parts))
    # Entries of 16,000/√d carry eps·16,000: that, and not 1e-12, is what the rows allow.
    tolerance = 1e-12 if mean_norm < 100 else 2e-11
    assert_same(together, literal(x), tolerance)
    one_by_one = empty_moments(d)
    for part in parts:
        one_by_one = merged(one_by_one, moments(part))
    assert_same(one_by_one, literal(x), tolerance)


def test_empty_parts_change_nothing():
    x = rows(9, 3, seed=2, mean_norm=7.0)
    alone, none = moments(x), empty_moments(3)
    for together in (merged(none, alone), merged(alone, none), merged(none, none, alone, none)):
        assert_same(together, alone, 1e-15)
    empty = merged(none, none)
    assert all(bool((part == 0).all()) for part in empty)
    assert_same(merged(alone), alone, 1e-15)


def test_a_constant_coordinate_stays_constant():
    """Merging must not turn the rounding of a mean into a spread with a shape of its own."""
    x = rows(1500, 3, seed=3)
    x[:, 1] = -16_000.3
    total, start, width = empty_moments(3), 0, 1
    while start < len(x):
        total = merged(total, moments(x[start : start + width]))
        start, width = start + width, width % 7 + 1
    assert float(total.scatter_DD[1, 1]) <= len(x) * (8 * 2.3e-16 * 16_000.3) ** 2


@pytest.mark.parametrize("mean", [0.0, 1e6])
@pytest.mark.parametrize("sizes", [(20,), (1, 7, 12), (5, 0, 15)])
def test_batches_give_the_covariance_of_all_rows(mean, sizes):
    x, seen = normal(20, 4, mean=mean), RunningCovariance(4)
    for part in x.split(list(sizes)):
        seen.add(part)
    assert seen.n == 20
    torch.testing.assert_close(seen.covariance(), torch.cov(x.T), rtol=1e-8, atol=1e-8)


def test_rows_that_are_not_finite_are_left_out_and_few_rows_have_none():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    seen = RunningCovariance(3)
    assert torch.equal(seen.covariance(), torch.zeros(3, 3, dtype=torch.float64))
    seen.add(x[:1])
    assert torch.equal(seen.covariance(), torch.zeros(3, 3, dtype=torch.float64))
    bad = x.clone()
    bad[4, 1], bad[5, 2] = float("nan"), float("inf")
    seen.add(bad[1:])
    assert seen.n == 4
    torch.testing.assert_close(seen.covariance(), torch.cov(x[:4].double().T))
