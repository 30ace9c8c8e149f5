"""Correlations against scipy, aggregates over subsets against numpy, errors against theory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from isotrain.analysis.offline_isotropy.scores import agreement, cosines, groups_of, subset_names

SUBSETS = np.repeat(["MSRpar", "OnWN", "SMTnews"], [30, 60, 20])


@pytest.fixture(scope="module")
def scored():
    rng = np.random.default_rng(0)
    gold_P = rng.integers(0, 6, 110).astype(float)  # with ties, as human scores have
    offset_P = np.repeat([0.0, 4.0, -3.0], [30, 60, 20])
    cosine_SP = np.stack([gold_P + offset_P + rng.normal(0, s, 110) for s in (1.0, 3.0)])
    return gold_P, cosine_SP


def measured(scored, score, aggregate, baseline=0, n_resamples=50):
    groups, weights = groups_of(SUBSETS, aggregate, 110)
    return agreement(score, *scored, groups, weights, baseline, n_resamples, 0)


@pytest.mark.parametrize(("score", "oracle"), [("pearson", "pearsonr"), ("spearman", "spearmanr")])
def test_all_pairs_against_scipy(scored, score, oracle):
    gold_P, cosine_SP = scored
    found = measured(scored, score, "all")
    expected = [100 * getattr(scipy.stats, oracle)(gold_P, c)[0] for c in cosine_SP]
    np.testing.assert_allclose(found.value_S, expected, atol=1e-9)
    np.testing.assert_allclose(found.gain_S, np.array(expected) - expected[0], atol=1e-9)


@pytest.mark.parametrize("aggregate", ["mean", "weighted"])
def test_subset_means_against_numpy(scored, aggregate):
    gold_P, cosine_SP = scored
    for s, cosine_P in enumerate(cosine_SP):
        each = [
            scipy.stats.spearmanr(gold_P[name == SUBSETS], cosine_P[name == SUBSETS])[0]
            for name in ("MSRpar", "OnWN", "SMTnews")
        ]
        weights = [30, 60, 20] if aggregate == "weighted" else None
        expected = 100 * np.average(each, weights=weights)
        found = measured(scored, "spearman", aggregate).value_S[s]
        assert found == pytest.approx(expected, abs=1e-9)
        assert found != pytest.approx(measured(scored, "spearman", "all").value_S[s], abs=1)


def test_resamples_stay_inside_their_subset():
    """Two subsets, each in perfect order: their mean is 100 in every resample."""
    gold_P = np.tile(np.arange(20.0), 2)
    cosine_SP = (gold_P + np.repeat([0.0, 50.0], 20))[None]
    groups, weights = groups_of(np.repeat(["a", "b"], 20), "mean", 40)
    found = agreement("spearman", gold_P, cosine_SP, groups, weights, 0, 50, 0)
    assert found.value_S[0] == pytest.approx(100.0)
    assert found.error_S[0] == pytest.approx(0.0, abs=1e-9)
    whole = agreement("spearman", gold_P, cosine_SP, [np.arange(40)], [1.0], 0, 50, 0)
    assert whole.value_S[0] < 60
    assert whole.error_S[0] > 1


def test_the_error_of_a_correlation_of_gaussians():
    rng = np.random.default_rng(1)
    x_P = rng.normal(size=1000)
    y_P = 0.6 * x_P + 0.8 * rng.normal(size=1000)
    found = agreement("pearson", x_P, y_P[None], [np.arange(1000)], [1.0], 0, 2000, 0)
    assert found.error_S[0] == pytest.approx(100 * (1 - 0.6**2) / np.sqrt(1000), rel=0.12)


def test_errors_of_gains_are_paired(scored):
    gold_P, cosine_SP = scored
    near_SP = np.stack([cosine_SP[0], 2.0 * cosine_SP[0] + 1.0, cosine_SP[1]])
    found = agreement("spearman", gold_P, near_SP, [np.arange(110)], [1.0], 0, 200, 0)
    assert found.gain_S[1] == pytest.approx(0.0, abs=1e-9)  # the same order of pairs
    assert found.gain_error_S[1] == pytest.approx(0.0, abs=1e-9)
    assert found.error_S[1] > 1
    assert 0 < found.gain_error_S[2] < found.error_S[0] + found.error_S[2]


def test_equal_seeds_give_equal_errors(scored):
    one, two = (measured(scored, "spearman", "all") for _ in range(2))
    np.testing.assert_array_equal(one.error_S, two.error_S)


def test_cosines_that_are_all_equal_have_no_correlation(scored):
    gold_P, cosine_SP = scored
    flat_SP = np.stack([cosine_SP[0], np.full(110, 0.5)])
    found = agreement("pearson", gold_P, flat_SP, [np.arange(110)], [1.0], 0, 50, 0)
    assert np.isfinite(found.value_S[0])
    assert np.isnan(found.value_S[1])
    assert np.isnan(found.error_S[1])


def test_what_an_aggregate_needs():
    with pytest.raises(ValueError, match="name no subset"):
        groups_of(None, "mean", 110)
    short = np.array(["a"] * 50 + ["b"] * 9)
    with pytest.raises(ValueError, match="subset b has 9 pairs, fewer than 10"):
        groups_of(short, "weighted", 59)
    assert subset_names(SUBSETS) == ["MSRpar", "OnWN", "SMTnews"]


def test_cosines_against_numpy():
    x_UD = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    first_P, second_P = np.array([0, 1, 2]), np.array([3, 4, 2])
    a, b = x_UD.double().numpy()[first_P], x_UD.double().numpy()[second_P]
    expected_P = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(cosines(x_UD, first_P, second_P), expected_P, atol=1e-12)
