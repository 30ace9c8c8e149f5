"""Intervals and paired tests against scipy, closed forms, algebra, and their own coverage."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isotrain.reporting.statistics import compare_paired, holm, seeds_needed, summarize

SCORES = st.lists(st.floats(0.0, 1.0, width=32), min_size=2, max_size=12).filter(
    lambda values: np.std(values) > 1e-3
)
FEW = settings(max_examples=25)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_interval_and_paired_test_agree_with_scipy(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.7, 0.05, n), rng.normal(0.68, 0.05, n)
    own = summarize(a)
    difference = compare_paired(a, b).difference
    interval = stats.t.interval(0.95, n - 1, a.mean(), stats.sem(a))
    assert (own.n, difference.n) == (n, n)
    assert (own.low, own.high) == pytest.approx(interval, rel=1e-12)
    assert own.sd == pytest.approx(a.std(ddof=1), rel=1e-12)
    reference = stats.ttest_rel(a, b)
    paired = reference.confidence_interval(0.95)
    assert difference.mean == pytest.approx((a - b).mean(), rel=1e-12)
    assert difference.p == pytest.approx(reference.pvalue, rel=1e-12)
    assert (difference.low, difference.high) == pytest.approx(paired, rel=1e-12)


def test_one_value_has_a_mean_and_nothing_else():
    assert summarize([0.7]) == (1, 0.7, None, None, None, None)
    compared = compare_paired([0.7], [0.5], margin=0.1)
    assert compared.difference == (1, pytest.approx(0.2), None, None, None, None)
    assert compared[1:] == (None, "", None)


def test_values_equal_up_to_float32_claim_no_certainty():
    """0.7 and 0.699999988 are one accuracy in two roundings; p would be 1e-7."""
    values = [0.7, float(np.float32(0.7)), 0.7]
    assert summarize(values)[2:] == (0.0, None, None, None)
    shifted = [value + 0.1 for value in values]
    for n_times in (1, 3):  # 9 pairs: sign flips would say 0.004
        compared = compare_paired(shifted * n_times, values * n_times, margin=0.5)
        assert compared.difference.mean == pytest.approx(0.1)
        assert compared.difference[2:] == (0.0, None, None, None)
        assert compared[1:] == (None, "", None)
    assert compare_paired([0.0, 0.0], [0.0, 0.0]).difference == (2, 0.0, 0.0, None, None, None)


@FEW
@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_seeds_changes_no_digit(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    base = [value**2 for value in values]
    shuffled = [values[i] for i in order]
    assert summarize(shuffled) == summarize(values)
    assert compare_paired(shuffled, [base[i] for i in order]) == compare_paired(values, base)


@pytest.mark.parametrize(("n", "covers"), [(3, 0.883), (5, 0.883), (10, 0.900)])
def test_the_interval_of_skewed_scores_covers_as_the_docstring_says(n, covers):
    draws = np.random.default_rng(1).exponential(size=(2000, n))
    covered = [found.low <= 1 <= found.high for found in map(summarize, draws.tolist())]
    assert np.mean(covered) == pytest.approx(covers, abs=0.02)


def closed_testing(p_values):
    """Holm as closed testing: a hypothesis falls with every intersection it is part of."""
    known = [i for i, p in enumerate(p_values) if p is not None]
    subsets = [s for k in range(1, len(known) + 1) for s in combinations(known, k)]
    return [
        p
        if p is None
        else max(min(1, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s)
        for i, p in enumerate(p_values)
    ]


P_VALUES = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05, 1.0]))


@FEW
@given(st.lists(P_VALUES, max_size=7))
def test_holm_is_closed_testing(p_values):
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


@pytest.mark.parametrize(
    ("values", "said"),
    [([], "at least one"), ([0.5, math.nan], "all finite"), ([math.inf], "all finite")],
)
def test_what_cannot_be_summarised(values, said):
    with pytest.raises(ValueError, match=said):
        summarize(values)


def test_refused_arguments():
    with pytest.raises(ValueError, match="got 2 and 1; keep the seeds that both methods have"):
        compare_paired([0.1, 0.2], [0.1])
    with pytest.raises(ValueError, match="all finite"):
        compare_paired([0.1, math.nan], [0.1, 0.2])
    for margin in (0, -0.01, math.nan):
        with pytest.raises(ValueError, match="margin must be above 0"):
            compare_paired([0.1, 0.2], [0.1, 0.3], margin)
    with pytest.raises(ValueError, match="margin must be below inf"):
        compare_paired([0.1, 0.2], [0.1, 0.3], math.inf)
    with pytest.raises(ValueError, match="sd must be above 0, got 0"):
        seeds_needed(0.0)
    with pytest.raises(ValueError, match=r"power must be at least 0.8, got 0.5"):
        seeds_needed(0.01, power=0.5)
    with pytest.raises(ValueError, match=r"between 0 and 1, got \[nan, 1.5\]"):
        holm([0.5, None, math.nan, 1.5])
