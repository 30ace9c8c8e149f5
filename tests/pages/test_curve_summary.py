"""Curves in a few numbers: closed forms, and an integral by another library."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.pages.wandb_media import curve_summary

PROFILE = settings(max_examples=60)
POINTS = st.dictionaries(
    st.integers(0, 500), st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8
).map(lambda found: list(found.items()))


@given(POINTS)
@PROFILE
def test_the_area_is_the_trapezoid_integral_over_the_range(points):
    step_P, value_P = np.array(sorted(points)).T
    width = step_P[-1] - step_P[0]
    expected = np.trapezoid(value_P, step_P) / width if width else value_P[0]
    assert curve_summary(points)["area"] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(POINTS, st.sampled_from(["max", "min"]))
@PROFILE
def test_final_and_best_are_those_of_the_values_whatever_the_order(points, mode):
    found = curve_summary(points[::-1], mode)
    values = dict(points)
    best = max(values.values()) if mode == "max" else min(values.values())
    assert found["final"] == values[max(values)]
    assert found["best"] == best
    assert found["best_step"] == min(step for step, value in values.items() if value == best)
    assert found == curve_summary(points, mode)


@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_left_out_but_as_the_final_one(hole):
    assert curve_summary([(0, 1.0), (1, hole), (2, 3.0)], "min") == {
        **{"final": 3.0, "area": 2.0},
        **{"best": 1.0, "best_step": 0},
    }
    found = curve_summary([(0, 1.0), (2, 3.0), (9, hole)], "max")
    assert math.isnan(found.pop("final"))
    assert found == {"area": 2.0, "best": 3.0, "best_step": 2}
    (only,) = curve_summary([(0, hole)], "max").items()
    assert only[0] == "final"
    assert math.isnan(only[1])
