"""Intervals of mean scores: for other seeds and for other examples."""

import numpy as np
import pytest

from isotrain.analysis.data_scale.measures import mean_ratio


def half(found):
    return (found["high"] - found["low"]) / 2


def test_heads_that_agree_on_every_example_have_the_binomial_interval():
    right_N = (np.arange(277) % 2).astype(float)
    found = mean_ratio(np.stack([right_N] * 5), np.ones((5, 277)))
    assert found["mean"] == pytest.approx(right_N.mean())
    assert (found["sd"], found["n_seeds"]) == (0, 5)
    assert half(found) == pytest.approx(1.97 * (0.25 / 277) ** 0.5, rel=0.08)


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
