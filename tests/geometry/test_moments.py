"""Moments of parts, merged, against the moments of all rows together."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.moments import Moments, merged, no_rows

light = settings(max_examples=25)


def rows(n, d, seed=0, mean_norm=0.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x + mean_norm / d**0.5


def moments(x):
    return Cloud(x, min_rows=1).moments if len(x) else no_rows(x.shape[1])


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


@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 9), (300, 6)])
def test_one_part_equals_the_definition(n, d):
    x = rows(n, d, mean_norm=3.0)
    x[1] = 0.0
    assert_same(moments(x), literal(x))


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
    one_by_one = no_rows(d)
    for part in parts:
        one_by_one = merged(one_by_one, moments(part))
    assert_same(one_by_one, literal(x), tolerance)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(0, 10_000))
@light
def test_merging_is_associative_and_commutative(a, b, c, seed):
    first, second, third = (
        moments(rows(n, 3, seed + i, mean_norm=4.0 * i)) for i, n in enumerate((a, b, c))
    )
    left = merged(merged(first, second), third)
    assert_same(left, merged(first, merged(second, third)))
    assert_same(left, merged(third, first, second))


def test_parts_far_from_each_other():
    """Parts whose means are 1e3 apart at unit variance: every power of the shift is needed."""
    parts = [rows(20, 4, seed=i, mean_norm=m) for i, m in enumerate((0.0, 1e3, -2e3))]
    assert_same(merged(*map(moments, parts)), literal(torch.cat(parts)))


@pytest.mark.parametrize("mean_norm", [0.0, 16_000.0])
def test_a_thousand_single_rows(mean_norm):
    x = rows(1000, 5, seed=1, mean_norm=mean_norm)
    total = no_rows(5)
    for row in x:
        total = merged(total, moments(row[None]))
    assert_same(total, literal(x), 1e-11)


def test_empty_parts_change_nothing():
    x = rows(9, 3, seed=2, mean_norm=7.0)
    alone, none = moments(x), no_rows(3)
    for together in (merged(none, alone), merged(alone, none), merged(none, none, alone, none)):
        assert_same(together, alone, 1e-15)
    empty = merged(none, none)
    assert all(bool((part == 0).all()) for part in empty)
    assert_same(merged(alone), alone, 1e-15)


def test_parts_are_left_alone():
    parts = [moments(rows(6, 3, seed=i, mean_norm=2.0 * i)) for i in range(3)]
    kept = [Moments(*(part.clone() for part in one)) for one in parts]
    merged(*parts)
    for one, before in zip(parts, kept, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, before, strict=True))


def test_a_constant_coordinate_stays_constant():
    """Merging must not turn the rounding of a mean into a spread with a shape of its own."""
    x = rows(1500, 3, seed=3)
    x[:, 1] = -16_000.3
    total, start, width = no_rows(3), 0, 1
    while start < len(x):
        total = merged(total, moments(x[start : start + width]))
        start, width = start + width, width % 7 + 1
    assert float(total.scatter_DD[1, 1]) <= len(x) * (8 * 2.3e-16 * 16_000.3) ** 2
