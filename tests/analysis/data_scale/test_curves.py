"""Curves over training sizes: summaries, and how much more data a score needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from isotrain.analysis.data_scale.curves import curves, data_factor, size_to_reach, summaries


def test_a_size_is_straight_over_the_logarithm():
    means = {32: 0.5, 128: 0.7, 512: 0.6, 2048: 0.9}
    assert size_to_reach(means, 0.5) == 32
    assert size_to_reach(means, 0.2) == 32
    assert size_to_reach(means, 0.6) == pytest.approx(64)
    assert size_to_reach(means, 0.7) == pytest.approx(128)
    assert size_to_reach(means, 0.75) == pytest.approx(512 * 4**0.5)  # after the dip
    assert size_to_reach(means, 0.91) == math.inf


def test_a_curve_shifted_by_a_factor_needs_that_factor():
    grid = [2**k for k in range(5, 12)]
    reference = {s: [0.5 + 0.05 * math.log2(s / 32)] * 2 for s in grid}
    shifted = {s: [0.5 + 0.05 * math.log2(s / 4 / 32)] * 2 for s in grid}
    for size in grid[:-2]:
        assert data_factor(shifted, reference, size) == ("4", "4", "4")
        assert data_factor(reference, reference, size)[0] in ("1", "≤ 1")
    assert data_factor(shifted, reference, 1024) == ("> 2", "> 2", "> 2")
    assert data_factor(reference, shifted, 64)[0] == "≤ 0.5"
    assert data_factor(reference, shifted, 1024)[0] == "0.25"


def test_least_and_most_come_from_the_ends_of_the_intervals():
    grid = [2**k for k in range(5, 12)]
    level = {s: 0.5 + 0.05 * math.log2(s / 32) for s in grid}
    spread = 0.001
    reference = {s: [one - spread, one + spread] for s, one in level.items()}
    other = {s: [one - 0.1 - spread, one - 0.1 + spread] for s, one in level.items()}
    half = stats.t.ppf(0.975, 1) * spread  # t·sd/√n, sd = √2·spread
    found = [float(text) for text in data_factor(other, reference, 64)]
    expected = [4 * 2 ** (ends * half / 0.05) for ends in (0, -2, 2)]
    assert found == pytest.approx(expected, rel=5e-3)


def test_one_seed_has_a_factor_and_no_ends():
    assert data_factor({32: [0.5], 64: [0.7]}, {32: [0.7], 64: [0.8]}, 32) == ("2", None, None)
    assert data_factor({32: [0.5], 64: [0.7]}, {32: [0.7], 64: [0.8]}, 64) == ("> 1", None, None)


def record(weights, features, size, seed, score, task="sst2"):
    found = {"kind": "score", "weights": weights, "features": features, "task": task}
    return {**found, "size": size, "seed": seed, "score": score}


def test_each_task_has_a_curve_for_each_kind_of_features():
    records = [
        record("as given", features, size, seed, 0.1 * seed + size, task)
        for task in ("rte", "sst2")
        for features in ("random", "encoder")
        for seed in (0, 1)
        for size in (32, 64)
    ]
    records.append({"kind": "features", "weights": "as given"})
    found = curves(records)
    assert list(found) == ["rte", "sst2"]
    assert list(found["rte"]) == ["encoder", "random"]
    assert found["rte"]["random"] == {32: [32.0, 32.1], 64: [64.0, 64.1]}


def test_before_and_after_a_run_the_encoder_has_two_curves_and_the_others_one():
    records = [
        record(weights, features, 32, 0, score)
        for weights, score in (("before", 0.5), ("after", 0.75))
        for features in ("static", "random", "encoder")
    ]
    own = curves(records)["sst2"]
    assert own["encoder before"] == {32: [0.5]}
    assert own["encoder after"] == {32: [0.75]}
    assert list(own) == ["encoder before", "encoder after", "static", "random"]


def test_intervals_are_those_of_student():
    scores = [0.71, 0.74, 0.78]
    (found,) = summaries({32: scores}).values()
    low, high = stats.t.interval(0.95, 2, np.mean(scores), stats.sem(scores))
    assert (found.n, found.mean) == (3, pytest.approx(np.mean(scores)))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.sd == pytest.approx(np.std(scores, ddof=1))
