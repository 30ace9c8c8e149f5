"""Logged records as series and numbers."""

import pytest

from isotrain.results.series import End, chance, end_of, isotropy_series, n_rows
from isotrain.runs.keys import CurveKey
from tests.pages.small_run import clouds, evaluation

ROWS = [evaluation(0, clouds()), {"step": 1, "train/loss": 0.7}, evaluation(20, clouds())]


def test_n_of_places_that_differ_is_a_range_and_nan_is_none():
    n_of_layers = (640.0, 9.0, float("nan"))
    key = "isotropy/n_rows/layer_0{}/cls"
    rows = [{"step": 0} | {key.format(k): n for k, n in enumerate(n_of_layers)}]
    assert n_rows(isotropy_series(rows), "cls") == "N = 9 to 640"
    assert n_rows(isotropy_series(ROWS), "cls") == "N = 640"
    assert n_rows(isotropy_series(ROWS), "mean") == "N = 640"
    assert n_rows(isotropy_series([{"step": 0, key.format(0): float("nan")}]), "cls") == ""


@pytest.mark.parametrize(
    ("result", "end"),
    [
        ({}, End(20, False)),
        ({"selected_step": 20}, End(20, False)),
        ({"selected_step": 0}, End(0, True)),
        ({"selected_step": 7}, End(20, False)),  # never evaluated
        ({"selected_step": None}, End(20, False)),
    ],
)
def test_the_end_is_the_kept_weights_else_the_last_evaluation(result, end):
    assert end_of(result, [*ROWS, {"step": 30, "train/loss": 0.5, "test/accuracy": 0.5}]) == end


def test_what_chance_gives_is_that_of_the_step():
    curve = CurveKey("partition", "pooled", "after")
    ends = {f"partition_null_{end}": x for end, x in (("low", -0.5), ("high", -0.25))}
    curves = {curve._replace(metric=m): [(0, x), (9, 2 * x)] for m, x in ends.items()}
    assert (chance(curves, curve, 0), chance(curves, curve, 9)) == ("−0.50…−0.25", "−1.0…−0.5")
