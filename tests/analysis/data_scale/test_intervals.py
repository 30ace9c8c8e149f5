"""Intervals of mean scores: for other seeds and for other examples."""

from __future__ import annotations

import numpy as np
import pytest

from isotrain.analysis.data_scale.measure import matthews, mean_ratio, mean_score


def half(found):
    return (found["high"] - found["low"]) / 2


def test_heads_that_agree_on_every_example_have_the_binomial_interval():
    right_N = (np.arange(277) % 2).astype(float)
    found = mean_ratio(np.stack([right_N] * 5), np.ones((5, 277)))
    assert found["mean"] == pytest.approx(right_N.mean())
    assert (found["sd"], found["n_seeds"]) == (0, 5)
    assert half(found) == pytest.approx(1.97 * (0.25 / 277) ** 0.5, rel=0.08)


def test_few_examples_widen_what_seeds_alone_would_say():
    draw = np.random.default_rng(0)
    easy_N = draw.random(277) < 0.54  # the examples decide, and seeds hardly differ
    right_SN = np.stack([np.where(draw.random(277) < 0.9, easy_N, ~easy_N) for _ in range(5)])
    found = mean_ratio(right_SN.astype(float), np.ones((5, 277)))
    of_seeds = 2.776 * found["sd"] / 5**0.5
    assert half(found) > 0.04
    assert half(found) > 1.5 * of_seeds


def test_the_interval_covers_the_score_on_all_examples():
    """Simulated heads and examples, both with effects of their own."""
    draw, n_covered = np.random.default_rng(1), 0
    mean = 0.694  # of 0.7 + N(0, 0.2² + 0.03²), clipped to 0 … 1
    for _ in range(40):
        example_N, head_S1 = draw.normal(0, 0.2, 300), draw.normal(0, 0.03, (4, 1))
        right_SN = draw.random((4, 300)) < np.clip(0.7 + example_N + head_S1, 0, 1)
        found = mean_ratio(right_SN.astype(float), np.ones((4, 300)))
        n_covered += found["low"] <= mean <= found["high"]
    assert n_covered >= 34


def test_f1_is_resampled_by_sentences():
    draw = np.random.default_rng(2)
    weight_SN = draw.integers(0, 7, size=(3, 200)).astype(float)
    gain_SN = np.floor(weight_SN * draw.random((3, 200)))
    found = mean_ratio(gain_SN, weight_SN)
    scores = gain_SN.sum(axis=1) / weight_SN.sum(axis=1)
    assert found["mean"] == pytest.approx(scores.mean())
    one = mean_ratio(gain_SN[:1], weight_SN[:1])
    resampled = []
    for _ in range(2000):
        at = draw.integers(200, size=200)
        resampled.append(gain_SN[0, at].sum() / weight_SN[0, at].sum())
    assert half(one) == pytest.approx(1.97 * np.std(resampled), rel=0.1)
    assert one["sd"] is None


def test_ends_lie_in_the_range_of_the_score():
    right_SN = np.ones((3, 40))
    right_SN[0, 0] = 0
    found = mean_ratio(right_SN, np.ones((3, 40)))
    assert found["high"] == 1.0
    assert found["low"] < found["mean"] < 1
    nothing = mean_ratio(np.zeros((3, 40)), np.zeros((3, 40)))  # no entity anywhere
    assert (nothing["mean"], nothing["low"], nothing["high"]) == (0, None, None)


def test_a_correlation_of_pairs_has_an_interval_over_them():
    draw = np.random.default_rng(3)
    gold = draw.integers(3, size=150).astype(float)
    own = np.where(draw.random((4, 150)) < 0.5, gold, draw.integers(3, size=(4, 150)))
    found = mean_score(own, np.zeros_like(own), gold, matthews, lowest=-1.0)
    assert found["mean"] == pytest.approx(matthews(gold, own, np.ones((1, 150))).mean())
    assert 0.05 < half(found) < 0.25
    single = mean_score(own[:, :1], np.zeros((4, 1)), gold[:1], matthews, lowest=-1.0)
    assert (single["mean"], single["low"]) == (0, None)
