"""Charts of a study have each method where its numbers are."""

import math

import pytest

from isotrain.pages.study_charts import (
    SHAPES,
    against_isotropy,
    around_site,
    by_layer,
    differences,
    looks,
    paired,
    through_training,
)
from isotrain.results.curves import Curve
from isotrain.results.statistics import Summary
from isotrain.runs.keys import CurveKey
from tests.pages.small_study import EFFECT, METRICS, curves_of, isotropy, result
from tests.pages.test_charts import scales, short, values

STUDY, METHODS = result(), [*EFFECT]
KEY, TITLE = "test/accuracy", "IsoScore, bias-corrected (1 = isotropic)"
WIC = [run for run in STUDY.runs if run.task == "wic"]
ROWS = [row for row in STUDY.rows if (row.task, row.score) == ("wic", KEY) and row.pairs]
CURVES = [c for c in curves_of() if c.task == "wic" and c.key.metric == METRICS[0]]


def test_no_two_methods_look_alike():
    names = ["none", "b", *(f"a{k}" for k in range(34))]
    found = looks(names)
    ranges = [found[channel]["scale"]["range"] for channel in ("color", "shape", "strokeDash")]
    of_points = list(zip(*ranges[:2], strict=True))
    of_lines = [(colour, *dash) for colour, _, dash in zip(*ranges, strict=True)]
    assert len(set(of_points)) == len(names) == 36
    assert set(ranges[1]) == set(SHAPES)
    assert len(set(of_lines[:29])) == 29  # a line has its points too


def test_a_difference_has_its_interval_its_seeds_and_its_mean():
    spec = differences(ROWS, WIC, METHODS, {"istar": 0.0123})
    assert {row.p_holm < 0.05 for row in ROWS} == {True, False}
    for row, drawn in zip(ROWS, values(spec), strict=True):
        own = {run.seed: run.scores[KEY] for run in WIC if run.method == row.method}
        base = {run.seed: run.scores[KEY] for run in WIC if run.method == "none"}
        assert drawn["method"] == row.method
        assert drawn["seeds"] == [short(100 * (own[k] - base[k])) for k in own]
        ends = {"low": "difference_low", "high": "difference_high"}
        for name in ("difference", "low", "high", "both_low", "both_high"):
            assert drawn[name] == short(100 * getattr(row, ends.get(name, name)))
        assert drawn["is_shown"] == (row.p_holm < 0.05)
        assert drawn["published"] == (1.23 if row.method == "istar" else None)
    assert spec["layer"][0]["data"]["values"] == [{"from": -1, "to": 1}]  # the margin
    bare = [row._replace(margin=None) for row in ROWS]
    assert len(differences(bare, WIC, METHODS)["layer"]) == len(spec["layer"]) - 1
    gone = [run._replace(scores={}) if run.seed else run for run in WIC]
    assert len(paired(gone, KEY, "istar", "none")) == 1  # seeds that both have


def test_every_run_is_a_point_at_every_place():
    places = {"layer": CurveKey(METRICS[0], "layer_01", "tokens")}
    places["input"] = CurveKey(METRICS[0], "pooled", "before")
    runs = [r._replace(degenerate="one class") if r.seed == 0 else r for r in WIC]
    runs[1] = runs[1]._replace(scores={KEY: 0.5})  # of a run without isotropy nothing is drawn
    spec = against_isotropy(runs, KEY, places, METHODS)
    wanted = [
        {"place": place, "method": r.method, "seed": r.seed}
        | {"x": short(r.scores[key.text]), "y": short(100 * r.scores[KEY])}
        | {"is_collapsed": r.seed == 0}
        for place, key in places.items()
        for r in runs
        if key.text in r.scores
    ]
    assert values(spec) == wanted
    assert {row["method"] for row in wanted if row["place"] == "input"} == {*EFFECT} - {"none"}
    assert len(wanted) == 31 + 24


def end_of(curve_key, method):
    mean = isotropy(curve_key, method)
    return {"n": 8} | {k: short(mean + w) for k, w in (("mean", 0), ("low", -HALF), ("high", HALF))}


HALF = 0.002 + 170 / 2e4


def test_layers_at_the_end_with_their_bands():
    spec = by_layer(CURVES, "tokens", METHODS, {"tokens": "tokens"})
    wanted = [
        {"metric": TITLE, "method": method, "x": k}
        | end_of(CurveKey(METRICS[0], f"layer_0{k}", "tokens"), method)
        for method in METHODS
        for k in (0, 1)
    ]
    assert values(spec) == wanted
    assert spec["layer"][1]["encoding"]["x"]["axis"]["values"] == [0, 1]


def test_around_a_site_with_what_the_head_reads_without_a_layer():
    spec = around_site(CURVES, "pooled", METHODS)
    sides = {"before": "layer input", "after": "output"}
    wanted = [
        {"metric": TITLE, "method": method, "x": sides[side]}
        | end_of(CurveKey(METRICS[0], "pooled", side), method)
        for method in METHODS
        for side in sides
        if (method, side) != ("none", "before")
    ]
    assert values(spec) == wanted
    assert spec["layer"][1]["encoding"]["xOffset"]["sort"] == METHODS  # side by side


def test_a_curve_through_training_has_a_gap_where_a_mean_is_not_finite():
    curve_key = CurveKey(METRICS[0], "layer_01", "tokens")
    points = {step: Summary(1, 0.1 * step, None, None, None, None) for step in range(3)}
    points[1] = points[1]._replace(mean=math.nan)
    (row,) = values(through_training([Curve("wic", "none", curve_key, points)], METHODS))
    assert (row["step"], row["mean"]) == ([0, 1, 2], [0, None, 0.2])
    assert (row["cloud"], row["low"]) == ("layer 1, tokens", [None] * 3)
    whole = through_training(CURVES, METHODS)
    for drawn, curve in zip(values(whole), CURVES, strict=True):
        for name in ("n", "mean", "low", "high"):
            found = [getattr(point, name) for point in curve.points.values()]
            assert drawn[name] == pytest.approx(found, rel=1e-4)
    assert list(scales(whole, "color")) == METHODS
