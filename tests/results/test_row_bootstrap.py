"""Intervals over rows and seeds, and their scores: scipy, closed forms, symmetries, coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isotrain.results import row_bootstrap
from isotrain.results.row_bootstrap import SCORES, row_interval, same_rows
from isotrain.results.statistics import compare_paired
from isotrain.runs.predictions import Predictions

FEW = settings(max_examples=25)
ACCURACY, SPEARMAN = SCORES["accuracy"], SCORES["spearman"]


@FEW
@given(st.integers(0, 10**6), st.integers(3, 30), st.integers(2, 12))
def test_scores_of_a_resample_are_those_of_its_rows_written_out(seed, n_rows, n_values):
    """Few values, so that there are ties; counts of 0 and of several."""
    rng = np.random.default_rng(seed)
    label_N = rng.integers(0, n_values, n_rows).astype(float)
    prediction_PN = rng.integers(0, n_values, (2, n_rows)).astype(float)
    count_RN = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=4).astype(float)
    found = {name: score(label_N, prediction_PN, count_RN) for name, score in SCORES.items()}
    for r, count_N in enumerate(count_RN.astype(int)):
        label = np.repeat(label_N, count_N)
        for p in range(2):
            prediction = np.repeat(prediction_PN[p], count_N)
            assert found["accuracy"][r, p] == pytest.approx(np.mean(label == prediction))
            if len(set(label)) == 1 or len(set(prediction)) == 1:
                assert np.isnan([found["pearson"][r, p], found["spearman"][r, p]]).all()
                continue
            pearson = stats.pearsonr(label, prediction).statistic
            assert found["pearson"][r, p] == pytest.approx(pearson, abs=1e-9)
            spearman = stats.spearmanr(label, prediction).statistic
            assert found["spearman"][r, p] == pytest.approx(spearman, abs=1e-9)


def test_pearson_of_cosines_that_lie_close_together():
    """All about 0.98 with a spread of 1e-4, as an anisotropic encoder gives them."""
    rng = np.random.default_rng(0)
    label_N = rng.uniform(0, 5, 500)
    prediction_N = 0.98 + 1e-4 * rng.normal(label_N / 5, 0.3)
    count_N = np.bincount(rng.integers(0, 500, 500), minlength=500)
    found = SCORES["pearson"](label_N, prediction_N[None], count_N[None].astype(float))
    rows = [np.repeat(values, count_N) for values in (label_N, prediction_N)]
    assert found[0, 0] == pytest.approx(stats.pearsonr(*rows).statistic, abs=1e-9)


def two_methods(rng, n_seeds, n_rows, row=0.3, seed=0.1, noise=0.5, shift=0.2):
    """Right or wrong by a threshold on effects of rows, seeds and both; and the true difference.

    Rows have an effect that both methods share and one of their own; a run has one of its own.
    """
    shared = rng.normal(0, 1, n_rows)
    methods = [
        0.5
        + place
        + shared
        + rng.normal(0, row, n_rows)
        + rng.normal(0, seed, (n_seeds, 1))
        + rng.normal(0, noise, (n_seeds, n_rows))
        > 0
        for place in (shift, 0)
    ]
    spread = math.sqrt(1 + row**2 + seed**2 + noise**2)
    truth = stats.norm.cdf((0.5 + shift) / spread) - stats.norm.cdf(0.5 / spread)
    label_N = rng.integers(0, 2, n_rows)
    return *(np.where(right_SN, label_N, 1 - label_N) for right_SN in methods), label_N, truth


def two_cosines(rng, n_seeds, n_rows, row=0.3, seed=0.15):
    """Predictions of a normal label by methods of which one has less noise; the true difference.

    The noise of a run is 0.5 or 0.6 times e^(seed·normal), so the mean over seeds is a quadrature.
    """
    label_N = rng.normal(0, 1, n_rows)
    shared_N = label_N + rng.normal(0, 0.5, n_rows)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    methods, truths = [], []
    for noise in (0.5, 0.6):
        own = shared_N + rng.normal(0, row, n_rows)
        scale_S1 = noise * np.exp(seed * rng.normal(0, 1, (n_seeds, 1)))
        methods.append(own + scale_S1 * rng.normal(0, 1, (n_seeds, n_rows)))
        r = 1 / np.sqrt(1.25 + row**2 + (noise * np.exp(seed * nodes)) ** 2)
        truths.append(weights @ (6 / np.pi * np.arcsin(r / 2)) / weights.sum())
    return *methods, label_N, truths[0] - truths[1]


def test_accuracy_has_a_closed_form():
    """What the bootstrap estimates is, for a mean over rows, their covariance over N."""
    rng = np.random.default_rng(2)
    method_SN, base_SN, label_N, _ = two_methods(rng, 4, 600, row=0.6, seed=0.06, noise=0.5)
    found = row_interval(method_SN, base_SN, label_N, ACCURACY, n_resamples=8000)
    x_SN = (method_SN == label_N).astype(float) - (base_SN == label_N)
    covariance_SS = np.cov(x_SN) / 600
    of_rows = (covariance_SS.sum() - np.trace(covariance_SS)) / 12
    of_seeds = x_SN.mean(axis=1).var(ddof=1) / 4
    t_rows, t_seeds = stats.t.ppf(0.975, [599, 3])
    half = math.sqrt(t_rows**2 * of_rows + t_seeds**2 * of_seeds)
    assert 0.2 < t_rows**2 * of_rows / half**2 < 0.8  # both parts are seen
    assert found.mean == pytest.approx(x_SN.mean(), abs=1e-12)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.02)
    assert (found.high + found.low) / 2 == pytest.approx(found.mean, abs=1e-12)
    assert found[3:] == (600, 4, 0)


@pytest.mark.parametrize("n_rows", [12, 400])
def test_one_seed_has_the_interval_of_its_rows(n_rows):
    rng = np.random.default_rng(1)
    method_SN, base_SN, label_N, _ = two_methods(rng, 1, n_rows)
    x_N = (method_SN[0] == label_N).astype(float) - (base_SN[0] == label_N)
    reference = stats.ttest_1samp(x_N, 0).confidence_interval()
    found = row_interval(method_SN, base_SN, label_N, ACCURACY, n_resamples=8000)
    assert (found.low, found.high) == pytest.approx(reference, abs=0.015 * np.ptp(reference))
    assert (found.n_rows, found.n_seeds) == (n_rows, 1)
    assert row_interval(method_SN[0], base_SN[0], label_N, ACCURACY, n_resamples=8000) == found


def test_equal_scores_of_other_rows_count_as_one_seed():
    """Three runs each right on 30 other rows: their spread is 0 by chance, not their error."""
    label_N = np.ones(90)
    method_SN = np.kron(np.eye(3), np.ones(30))
    found = row_interval(method_SN, np.zeros((3, 90)), label_N, ACCURACY, n_resamples=8000)
    reference = stats.ttest_1samp(method_SN[0], 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx(reference, abs=0.03 * np.ptp(reference))


@FEW
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0, 0.5), st.floats(0, 0.5))
def test_it_is_never_shorter_than_the_t_interval_over_the_same_seeds(seed, n_seeds, row, spread):
    rng = np.random.default_rng(seed)
    method_SN, base_SN, label_N, _ = two_methods(rng, n_seeds, 80, row, spread)
    found = row_interval(method_SN, base_SN, label_N, ACCURACY, n_resamples=100)
    scores = [(values_SN == label_N).mean(axis=1).tolist() for values_SN in (method_SN, base_SN)]
    over_seeds = compare_paired(*scores).difference
    assert found.mean == pytest.approx(over_seeds.mean, abs=1e-12)
    if over_seeds.low is not None:
        assert found.low <= over_seeds.low + 1e-12
        assert found.high >= over_seeds.high - 1e-12


def test_same_digits_by_seed_block_and_dtype(monkeypatch):
    method_SN, base_SN, label_N, _ = two_cosines(np.random.default_rng(5), 3, 101)
    method_SN, base_SN, label_N = (np.float32(values) for values in (method_SN, base_SN, label_N))
    found = row_interval(method_SN, base_SN, label_N, SPEARMAN, n_resamples=150)
    wide = [values.astype(np.float64) for values in (method_SN, base_SN, label_N)]
    assert row_interval(*wide, SPEARMAN, n_resamples=150) == found
    assert row_interval(*wide, SPEARMAN, n_resamples=150, seed=1) != found
    monkeypatch.setattr(row_bootstrap, "BLOCK", 707)  # seven resamples a time
    assert row_interval(*wide, SPEARMAN, n_resamples=150) == found


def lonely(n_different):
    """Two methods of 500 rows where all but a few predictions of one run are equal."""
    method_SN, base_SN, label_N, _ = two_cosines(np.random.default_rng(7), 2, 500)
    method_SN[1, n_different:] = 0.0
    return method_SN, base_SN, label_N


def test_resamples_without_a_rank_order_are_counted():
    """A resample has none of 6 of 500 rows in e⁻⁶ = 0.25 % of the cases: 10 of 4,000."""
    method_SN, base_SN, label_N = lonely(6)
    for first in (0, 1):  # with the other seed, and alone
        found = row_interval(
            method_SN[first:], base_SN[first:], label_N, SPEARMAN, n_resamples=4000
        )
        assert 2 <= found.n_undefined <= 24
        assert found.low < found.mean < found.high


@pytest.mark.parametrize("score", ["spearman", "pearson"])
def test_a_score_that_hangs_on_few_rows_is_rejected(score):
    with pytest.raises(ValueError, match=r"it is not in \d\d\d of 2000: in some run"):
        row_interval(*lonely(2), SCORES[score])
    with pytest.raises(ValueError, match=r"not for number \[1\] .*leave out such runs"):
        row_interval(*lonely(0), SCORES[score])


def test_rejected_arguments():
    method_SN, base_SN, label_N, _ = two_methods(np.random.default_rng(9), 3, 20)
    with pytest.raises(ValueError, match=r"got \(3, 20\), \(2, 20\) and \(20,\); keep the seeds"):
        row_interval(method_SN, base_SN[:2], label_N, ACCURACY)
    with pytest.raises(ValueError, match=r"a label each, .* and \(19,\)"):
        row_interval(method_SN, base_SN, label_N[:-1], ACCURACY)
    with pytest.raises(ValueError, match="two examples or more"):
        row_interval(method_SN[:, :1], base_SN[:, :1], label_N[:1], ACCURACY)
    with pytest.raises(ValueError, match="must be finite"):
        row_interval(np.where(method_SN > 0, np.nan, 0), base_SN, label_N, ACCURACY)
    with pytest.raises(ValueError, match="n_resamples must be at least 100, got 99"):
        row_interval(method_SN, base_SN, label_N, ACCURACY, n_resamples=99)


def test_only_runs_of_the_same_rows_are_stacked():
    index, label = np.arange(4), np.array([0.0, 1.0, 1.0, 0.0])
    first, other = Predictions(index, label, 1 - label), Predictions(index, label, label)
    label_N, prediction_SN = same_rows([first, other])
    assert label_N.tolist() == label.tolist()
    assert prediction_SN.tolist() == [(1 - label).tolist(), label.tolist()]
    with pytest.raises(ValueError, match=r"labels of number 1 \(N = 4\) are not those of number 0"):
        same_rows([first, Predictions(index, 1 - label, label)])
    with pytest.raises(ValueError, match=r"examples of number 2 \(N = 4\)"):
        same_rows([first, other, Predictions(index + 1, label, label)])
    with pytest.raises(
        ValueError, match=r"examples of number 1 \(N = 3\) are not those .* \(N = 4\)"
    ):
        same_rows([first, Predictions(index[:3], label[:3], label[:3])])
    with pytest.raises(ValueError, match="at least one run"):
        same_rows([])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effects", "n_seeds"),
    [
        ({"row": 0.0, "seed": 0.0, "noise": 0.7}, 5),
        ({"row": 0.5, "seed": 0.02, "noise": 0.3}, 3),
        ({"row": 0.5, "seed": 0.02, "noise": 0.3}, 10),
        ({"row": 0.1, "seed": 0.15, "noise": 0.5}, 3),
        ({"row": 0.1, "seed": 0.15, "noise": 0.5}, 10),
    ],
    ids=["noise", "rows, few seeds", "rows", "seeds, few of them", "seeds"],
)
def test_it_covers_the_difference_of_accuracies_for_new_rows_and_seeds(effects, n_seeds):
    """1,500 studies: a standard error of 0.6 points. Cautious at 3 seeds where rows decide."""
    rng = np.random.default_rng(n_seeds)
    covered = []
    for number in range(1500):
        *methods, truth = two_methods(rng, n_seeds, 300, **effects)
        found = row_interval(*methods, ACCURACY, n_resamples=100, seed=number)
        covered.append(found.low <= truth <= found.high)
    assert 0.93 < np.mean(covered) < (0.985 if n_seeds == 3 else 0.975)
