"""Figures of a study show each method where its numbers are."""

import math

import pytest

from isotrain.pages.study_figures import (
    MARKERS,
    against_isotropy,
    around_site,
    by_layer,
    differences,
    method_looks,
    through_training,
)
from isotrain.results.curves import Curve
from isotrain.results.statistics import Summary
from isotrain.runs.keys import CurveKey
from tests.pages.small_study import EFFECT, METRICS, curves_of, isotropy, result

STUDY = result()
LOOKS = method_looks(tuple(EFFECT), "none")
KEY = "test/accuracy"
WIC = [run for run in STUDY.runs if run.task == "wic"]
ROWS = [row for row in STUDY.rows if (row.task, row.score) == ("wic", KEY) and row.pairs]
TITLES = {"tokens": "tokens", "cls": "first token"}


def of_method(figure, method):
    gid = LOOKS[method].gid
    return [line for line in figure.axes[0].lines if line.get_gid() == gid]


def xs(line):
    return [float(value) for value in line.get_xdata()]


def ys(line):
    return [float(value) for value in line.get_ydata()]


def test_no_two_methods_look_alike():
    looks = method_looks(["b", "none", *(f"a{k}" for k in range(34))], "none")
    assert next(iter(looks)) == "none"
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(looks) == 36
    assert [look.number for look in looks.values()] == list(range(36))
    assert {look.marker for look in looks.values()} == set(MARKERS)


def test_a_difference_has_its_interval_its_seeds_and_its_mean():
    figure = differences(ROWS, WIC, LOOKS)
    for height, row in enumerate(ROWS):
        dots, interval, over_rows, mean = of_method(figure, row.method)
        own = {run.seed: run.scores[KEY] for run in WIC if run.method == row.method}
        base = {run.seed: run.scores[KEY] for run in WIC if run.method == "none"}
        assert sorted(xs(dots)) == pytest.approx(sorted(100 * (own[k] - base[k]) for k in own))
        assert xs(interval) == [100 * row.difference_low, 100 * row.difference_high]
        assert xs(over_rows) == [100 * row.both_low, 100 * row.both_high]
        assert xs(mean) == pytest.approx([100 * row.difference])
        assert all(
            height < y < height + 1 for line in (dots, interval, over_rows, mean) for y in ys(line)
        )
        full = row.p_holm < 0.05
        assert mean.get_markerfacecolor() == (LOOKS[row.method].colour if full else "white")
    assert {row.p_holm < 0.05 for row in ROWS} == {True, False}
    (axis,) = figure.axes
    (band,) = axis.patches
    assert (band.get_x(), band.get_width()) == (-1, 2)
    low, high = axis.get_xlim()
    reached = [x for line in axis.lines if line.get_gid() for x in xs(line)]
    assert low < min(*reached, -1)
    assert high > max(*reached, 1)
    assert axis.get_ylim() == (len(ROWS), 0)  # the first method on top
    assert axis.get_title() == "wic · accuracy on test · N = 1,400"


def test_every_run_and_every_mean_is_a_point():
    curve_key = CurveKey(METRICS[0], "layer_01", "tokens")
    runs = [r._replace(degenerate="one class") if r.seed == 0 else r for r in WIC]
    runs[1] = runs[1]._replace(scores={KEY: 0.5})  # of a run without isotropy nothing is drawn
    figure = against_isotropy(runs, KEY, curve_key, LOOKS, "wic")
    for method in EFFECT:
        own = [r for r in runs if r.method == method and curve_key.text in r.scores]
        sound, broken, mean = of_method(figure, method)
        assert (len(xs(sound)), len(xs(broken))) == (6 if method == "none" else 7, 1)
        assert broken.get_markerfacecolor() == "none"
        assert xs(mean) == pytest.approx([sum(r.scores[curve_key.text] for r in own) / len(own)])
        assert ys(mean) == pytest.approx([100 * sum(r.scores[KEY] for r in own) / len(own)])
    assert figure.axes[0].get_xlabel() == "IsoScore, bias-corrected (1 = isotropic)"
    assert figure.axes[0].get_ylabel() == "accuracy on test, points"


def curves():
    return [c for c in curves_of() if c.task == "wic" and c.key.metric == METRICS[0]]


def test_layers_at_the_end_with_their_bands():
    figure = by_layer(curves(), "tokens", LOOKS, TITLES)
    assert len(figure.axes[0].collections) == len(EFFECT)
    for method, band in zip(EFFECT, figure.axes[0].collections, strict=True):
        (line,) = of_method(figure, method)
        ends = [isotropy(CurveKey(METRICS[0], f"layer_0{k}", "tokens"), method) for k in (0, 1)]
        assert xs(line) == [0, 1]
        assert ys(line) == pytest.approx(ends)
        assert band.get_gid() == LOOKS[method].gid
        shape = band.get_paths()[0].vertices[:, 1]
        assert (shape.min(), shape.max()) == pytest.approx((min(ends) - 0.0105, max(ends) + 0.0105))
    assert figure.axes[0].get_title() == "wic · tokens · N = 2,048"
    assert figure.axes[0].get_ylabel() == "IsoScore, bias-corrected (1 = isotropic)"


def test_around_a_site_methods_stand_beside_each_other():
    figure = around_site(curves(), "pooled", LOOKS)
    ends = {}
    for method in EFFECT:
        *intervals, line = of_method(figure, method)
        assert len(xs(line)) == len(intervals) == (1 if method == "none" else 2)
        for bar, x, y in zip(intervals, xs(line), ys(line), strict=True):
            assert xs(bar) == [x, x]
            assert min(ys(bar)) < y < max(ys(bar))
        ends[method] = xs(line)[-1]
    assert len(set(ends.values())) == len(EFFECT)
    assert all(0.5 < x < 1.5 for x in ends.values())


def test_a_curve_through_training_has_a_gap_where_a_mean_is_not_finite():
    curve_key = CurveKey(METRICS[0], "layer_01", "tokens")
    points = {step: Summary(1, 0.1 * step, None, None, None, None) for step in range(3)}
    points[1] = points[1]._replace(mean=math.nan)
    figure = through_training([Curve("wic", "none", curve_key, points)], curve_key, LOOKS)
    (line,) = of_method(figure, "none")
    assert xs(line) == [0, 1, 2]
    assert [math.isnan(y) for y in ys(line)] == [False, True, False]
    whole = through_training(curves(), curve_key, LOOKS)
    assert len(whole.axes[0].collections) == len(whole.axes[0].lines) == len(EFFECT)
