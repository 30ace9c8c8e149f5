"""Intervals and paired tests: scipy, exact counts, algebra, and levels and power by simulation."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isotrain.results.statistics import (
    Comparison,
    compare_paired,
    holm,
    seeds_needed,
    summarize,
)

SCORES = st.lists(st.floats(0.0, 1.0, width=32), min_size=3, max_size=12).filter(
    lambda values: np.std(values) > 1e-3
)
FEW = settings(max_examples=25)


@pytest.mark.parametrize("n", [3, 5, 10])
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


def test_two_values_have_a_spread_and_no_interval_or_test():
    assert summarize([0.7, 0.8]) == (2, 0.75, pytest.approx(0.1 / 2**0.5), None, None, None)
    compared = compare_paired([0.7, 0.8], [0.5, 0.4], margin=0.1)
    assert compared.difference[:2] == (2, pytest.approx(0.3))
    assert compared.difference[3:] == (None, None, None)
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


def by_counting(differences):
    """p of all sign patterns, for integers: the exact distribution of their sums, by adding."""
    patterns = {0: 1}
    for size in differences:
        longer = {}
        for total, count in patterns.items():
            for signed in (total - size, total + size):
                longer[signed] = longer.get(signed, 0) + count
        patterns = longer
    reach = abs(sum(differences))
    return sum(n for total, n in patterns.items() if abs(total) >= reach) / 2 ** len(differences)


@pytest.mark.parametrize("n", [8, 9, 10, 13, 24, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sign_flips_of_accuracies_count_every_pattern_and_every_tie(n, dtype):
    """Few different differences: most sums are tied, and float32 tells some of the ties apart."""
    rng = np.random.default_rng(n)
    for shift in (0, 1, 4):
        right, base = rng.integers(180, 190, (2, n)).tolist()
        differences = [r + shift - b for r, b in zip(right, base, strict=True)]
        values = [float(dtype((r + shift) / 277)) for r in right]
        found = compare_paired(values, [float(dtype(b / 277)) for b in base])
        assert found.method == "permutation"
        assert found.p == by_counting(differences)


@pytest.mark.parametrize("n", [8, 10])
def test_sign_flips_agree_with_scipy(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.71, 0.02, n), rng.normal(0.69, 0.02, n)
    reference = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    assert compare_paired(a, b).p == pytest.approx(reference.pvalue, rel=1e-12)


def test_where_each_test_is_used():
    rng = np.random.default_rng(0)
    for n in (3, 7, 41, 60):
        found = compare_paired(rng.normal(0.1, 1, n), rng.normal(0, 1, n))
        assert (found.method, found.p) == ("t", found.difference.p)
    values, base = rng.normal(0.3, 1, (2, 40))
    found = compare_paired(values, base)
    assert found.method == "permutation"
    assert found.p == pytest.approx(found.difference.p, abs=0.01)


@FEW
@given(SCORES, st.floats(0.005, 0.5))
def test_equivalence_is_two_one_sided_tests_and_the_interval_inside(values, margin):
    base = [value**2 for value in values]
    differences = np.subtract(values, base)
    if np.std(differences) < 1e-4:
        return
    found = compare_paired(values, base, margin)
    sides = [
        stats.ttest_1samp(differences, -margin, alternative="greater").pvalue,
        stats.ttest_1samp(differences, margin, alternative="less").pvalue,
    ]
    assert found.p_equivalent == pytest.approx(max(sides), rel=1e-9)
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.9)
    inside = -margin < low and high < margin
    assert inside == (found.p_equivalent < 0.05)
    assert compare_paired(values, base).p_equivalent is None


def rejections(n_draws, n, share_of, draw):
    """How often a comparison of n normal differences is called by `share_of`."""
    differences = draw(np.random.default_rng(n), (n_draws, n))
    base = [0.7] * n
    return np.mean([share_of(compare_paired((0.7 + d).tolist(), base, 0.01)) for d in differences])


def differs(found: Comparison):
    return found.p < 0.05


def is_equivalent(found: Comparison):
    return found.p_equivalent < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("n", "method", "rate"), [(5, "t", 0.05), (8, "permutation", 12 / 256)])
def test_false_positives_of_the_paired_test(n, method, rate):
    """10,000 null studies: the standard error of the rate is 0.22 points."""
    found = rejections(10_000, n, differs, lambda rng, shape: rng.normal(0, 0.015, shape))
    assert compare_paired(range(n), [0.0] * n).method == method
    assert 0.04 < found < 0.06
    assert found == pytest.approx(rate, abs=0.008)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 10])
def test_equivalence_holds_its_level_at_the_edge_of_the_margin(n):
    """Sharp where the margin is wide for the spread, below 5 % where it is not."""
    edge = 0.01 if n == 5 else -0.01  # a mirror image
    sharp = rejections(6000, n, is_equivalent, lambda rng, s: rng.normal(edge, 0.002, s))
    blunt = rejections(500, n, is_equivalent, lambda rng, s: rng.normal(edge, 0.03, s))
    assert 0.04 < sharp < 0.06
    assert blunt < 0.02


@pytest.mark.parametrize("sd", [0.0002, 0.002, 0.004, 0.006, 0.01, 0.0237, 0.05, 0.3])
@pytest.mark.parametrize(("power", "m"), [(0.8, 1), (0.95, 1), (0.8, 3), (0.8, 17)])
def test_seeds_needed_is_the_first_with_the_power_under_holms_first_step(sd, power, m):
    def power_of(n):
        effect, reach = 0.01 * math.sqrt(n) / sd, stats.t.ppf(1 - 0.025 / m, n - 1)
        values = np.linspace(1e-9, 12, 200_001)  # s/σ, which has a chi density
        density = stats.chi.pdf(values * math.sqrt(n - 1), n - 1) * math.sqrt(n - 1)
        seen = stats.norm.sf(reach * values - effect) + stats.norm.cdf(-reach * values - effect)
        return np.trapezoid(density * seen, values)

    def has_patterns(n):
        return not 8 <= n <= 40 or 4 * 2.0 ** (1 - n) <= 0.05 / m

    n = seeds_needed(sd, power=power, n_comparisons=m)
    assert power_of(n) >= power - 1e-6
    assert has_patterns(n)
    assert n == 3 or power_of(n - 1) < power + 1e-6 or not has_patterns(n - 1)


@pytest.mark.parametrize(
    ("sd", "m"), [(0.0086, 1), (0.012, 1), (0.0075, 3), (0.012, 3), (0.0072, 17), (0.0071, 30)]
)
def test_flips_of_signs_have_about_the_power_that_is_said(sd, m):
    """2,000 studies by the test that the table uses: the standard error is 0.9 points."""
    n = seeds_needed(sd, n_comparisons=m)
    x = np.random.default_rng(n).normal(0.01, sd, (2000, n))
    found = [compare_paired((0.5 + d).tolist(), [0.5] * n) for d in x]
    assert found[0].method == "permutation"
    assert 0.71 < np.mean([one.p < 0.05 / m for one in found]) < 0.88


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


def test_rejected_arguments():
    with pytest.raises(ValueError, match="got 2 and 1; keep the seeds that both methods have"):
        compare_paired([0.1, 0.2], [0.1])
    with pytest.raises(ValueError, match=r"values must be a finite number"):
        compare_paired([0.1, math.nan], [0.1, 0.2])
    for margin in (0, -0.01, math.nan):
        with pytest.raises(ValueError, match=r"margin must be (above 0|a finite number)"):
            compare_paired([0.1, 0.2], [0.1, 0.3], margin)
    with pytest.raises(ValueError, match="margin must be a finite number"):
        compare_paired([0.1, 0.2], [0.1, 0.3], math.inf)
    with pytest.raises(ValueError, match="sd must be above 0, got 0"):
        seeds_needed(0.0)
    with pytest.raises(ValueError, match=r"power must be at least 0.8, got 0.5"):
        seeds_needed(0.01, power=0.5)
    with pytest.raises(ValueError, match=r"between 0 and 1, got \[nan, 1.5\]"):
        holm([0.5, None, math.nan, 1.5])
