"""Curves over training sizes: summaries, and how much more data a score needs."""

import math

import pytest

from isotrain.analysis.data_scale.show import (
    Point,
    curves,
    data_factor,
    size_to_reach,
)


def point(mean, half=None):
    ends = (None, None) if half is None else (mean - half, mean + half)
    return Point(mean, *ends)


def curve(means, half=None):
    return {size: point(mean, half) for size, mean in means.items()}


def test_a_size_is_straight_over_the_logarithm():
    means = {32: 0.5, 128: 0.7, 512: 0.6, 2048: 0.9}
    assert size_to_reach(means, 0.5) == 32
    assert size_to_reach(means, 0.2) == 32
    assert size_to_reach(means, 0.6) == pytest.approx(64)
    assert size_to_reach(means, 0.7) == pytest.approx(128)
    assert size_to_reach(means, 0.75) == pytest.approx(512 * 4**0.5)  # after the dip
    assert size_to_reach(means, 0.91) == math.inf


GRID = [2**k for k in range(5, 12)]
LEVEL = {s: 0.5 + 0.05 * math.log2(s / 32) for s in GRID}


def test_a_curve_shifted_by_a_factor_needs_that_factor():
    reference = curve(LEVEL)
    shifted = curve({s: mean - 0.1 for s, mean in LEVEL.items()})
    for size in GRID[:-2]:
        assert data_factor(shifted, reference, size) == ("4", None, None)
        assert data_factor(reference, reference, size)[0] in ("1", "≤ 1")
    assert data_factor(shifted, reference, 1024)[0] == "> 2"
    assert data_factor(reference, shifted, 64)[0] == "≤ 0.5"
    assert data_factor(reference, shifted, 1024)[0] == "0.25"


def test_least_and_most_come_from_the_ends_of_the_intervals():
    reference, other = curve(LEVEL, 0.02), curve({s: m - 0.1 for s, m in LEVEL.items()}, 0.03)
    found = [float(text) for text in data_factor(other, reference, 64)]
    expected = [4 * 2 ** (ends / 0.05) for ends in (0, -0.05, 0.05)]
    assert found == pytest.approx(expected, rel=5e-3)


def test_not_reached_says_nothing_where_there_is_hardly_more_data():
    low, high = curve({32: 0.5, 64: 0.7}), curve({32: 0.7, 64: 0.8})
    assert data_factor(low, high, 32) == ("2", None, None)
    assert data_factor(low, high, 64) == (None, None, None)
    assert data_factor(curve({32: 0.5, 128: 0.7}), curve({32: 0.9, 128: 0.9}), 32)[0] == "> 4"
    assert data_factor(high, low, 64)[0] == "≤ 0.5"  # what is reached is reported at any size


def test_a_lucky_draw_at_one_size_is_not_the_size_where_a_score_is_reached():
    reference = curve({32: 0.6, 128: 0.7, 512: 0.8, 2048: 0.9})
    lucky = curve({32: 0.5, 128: 0.8, 512: 0.7, 2048: 0.85})  # 512 and 128 together: 0.75
    assert float(data_factor(lucky, reference, 128)[0]) == pytest.approx(
        32 * 4**0.8 / 128, rel=5e-3
    )
    assert float(data_factor(lucky, reference, 512)[0]) > 1
    dip = curve({32: 0.8, 128: 0.6, 512: 0.8, 2048: 0.9})  # 32 and 128 together: 0.7
    assert data_factor(reference, dip, 32)[0] == "4"


def record(weights, features, size, mean, task="sst2"):
    found = {"kind": "mean", "weights": weights, "features": features, "task": task}
    return {**found, "size": size, "n_seeds": 3, "mean": mean, "sd": 0.1, "low": None, "high": None}


def test_before_and_after_a_run_the_encoder_has_two_curves_and_the_others_one():
    records = [record("before", name, 32, 0.5) for name in ("static", "random", "encoder")]
    records.append(record("after", "encoder", 32, 0.75))
    own = curves(records)["sst2"]
    assert {name: one[32].mean for name, one in own.items()} == {
        "encoder before": 0.5,
        "encoder after": 0.75,
        "static": 0.5,
        "random": 0.5,
    }
    assert list(own) == ["encoder before", "encoder after", "static", "random"]
