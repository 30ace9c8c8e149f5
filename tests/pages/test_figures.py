"""Figures by the data that they draw."""

import re

import numpy as np
import pytest

from isotrain.pages.cloud_figures import maps, spectra
from isotrain.pages.figures import curves, heatmap, loss_curve, score_curve
from isotrain.pages.page import inline, svg_text
from isotrain.pages.panels import draw_layers, draw_sites, layer_colours, panel
from isotrain.results.series import End
from isotrain.runs.keys import CurveKey
from tests.pages.small_run import LAYERS, STEPS, arrays, clouds, evaluation, value

ROWS = [evaluation(step, clouds()) for step in STEPS]
ROWS.insert(1, {"step": 9, "train/loss": 0.75})
METRIC = "isoscore_corrected"
LAST, KEPT = End(40, False), End(20, True)


def lines(figure):
    (axis,) = figure.axes
    return {line.get_label(): line for line in axis.get_lines()}


def layer_curves(rows, metric, view):
    figure, axis = panel()
    draw_layers(axis, rows, metric, view)
    return figure


def site_curves(rows, metric):
    figure, axis = panel()
    draw_sites(axis, rows, metric)
    return figure


def test_a_line_for_each_layer_with_its_colour_and_name():
    found = lines(layer_curves(ROWS, METRIC, "tokens"))
    assert list(found) == list(LAYERS)
    for name, line in found.items():
        assert list(line.get_xdata()) == list(STEPS)
        assert list(line.get_ydata()) == [value(step, name, "tokens") for step in STEPS]
        assert line.get_color() == layer_colours(LAYERS)[name]


def test_null_bands_are_shaded_for_the_metric_that_has_them():
    (axis,) = layer_curves(ROWS, "partition", "cls").axes
    assert len(axis.collections) == len(LAYERS)
    height = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (height.min(), height.max()) == (-0.5, -0.25)
    assert not layer_curves(ROWS, METRIC, "cls").axes[0].collections


def test_the_layer_input_is_dashed_and_the_output_solid():
    found = lines(site_curves(ROWS, METRIC))
    assert [line.get_linestyle() for line in found.values()] == ["--", "-"]
    assert list(found["pooled, output"].get_ydata()) == [value(s, "pooled", "after") for s in STEPS]
    alone = lines(site_curves([evaluation(s, clouds(layer=False)) for s in STEPS], METRIC))
    assert list(alone) == ["pooled"]


def test_score_and_loss():
    score = lines(score_curve([*ROWS, {"step": 40, "test/accuracy": 0.55}], "val/accuracy", 20))
    assert list(score["dev"].get_ydata()) == [100 * (0.5 + step / 400) for step in STEPS]
    assert list(score["test"].get_ydata()) == pytest.approx([55])
    level = lines(score_curve(ROWS, "val/accuracy", level=("majority class", 0.5)))
    assert list(level["majority class"].get_ydata()) == [50, 50]
    loss = lines(loss_curve(ROWS))
    assert (list(loss["training"].get_ydata()), len(loss["dev"].get_xdata())) == ([0.75], 3)
    rows = [{"step": 3, "train/loss": 2.0, "train/task_loss": 1.0, "train/simcse": 4.0}]
    assert set(lines(loss_curve(rows))) == {"training", "training: task loss", "training: simcse"}


def test_a_heatmap_has_layers_upwards_and_evaluations_to_the_right():
    rows = [dict(row) for row in ROWS]
    del rows[-1][CurveKey(METRIC, "layer_01", "cls").text]
    axis = heatmap(rows, METRIC, "cls").axes[0]
    (image,) = axis.images
    found = np.ma.filled(image.get_array(), np.nan)
    wanted = [[value(step, name, "cls") for step in STEPS] for name in LAYERS]
    wanted[1][2] = np.nan
    np.testing.assert_array_equal(found, wanted)
    assert image.origin == "lower"
    (cross,) = axis.get_lines()  # where there is no value
    assert (cross.get_marker(), cross.get_xydata().tolist()) == ("x", [[2.0, 1.0]])
    assert not heatmap(ROWS, METRIC, "cls").axes[0].get_lines()
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0", "20", "40"]


def test_spectra_are_shares_of_the_variance():
    snapshots = {step: arrays(step, clouds()) for step in STEPS}
    found = spectra(snapshots, "*/tokens", LAST).axes[0].get_lines()
    assert len(found) == 2 * len(LAYERS)  # the first and the last step
    assert [line.get_color() for line in found[::2]] == ["0.75"] * len(LAYERS)
    assert [line.get_color() for line in found[1::2]] == list(layer_colours(LAYERS).values())
    assert found[0].get_zorder() < found[-1].get_zorder()
    assert list(found[0].get_xdata()) == [1, 2, 3, 4]
    np.testing.assert_allclose(found[0].get_ydata(), [0.5, 0.25, 0.125, 0.125])
    of_site = lines(spectra(snapshots, "pooled/*", KEPT))
    assert list(of_site)[:2] == ["layer input, step 0", "layer input, kept weights (step 20)"]
    assert [line.get_linestyle() for line in of_site.values()] == ["--", "-"] * 2
    (alone,) = lines(spectra({0: snapshots[0]}, "layer_00/cls", End(0, False))).values()
    assert alone.get_linestyle() == "-"


def test_maps_have_a_mark_for_each_class():
    points = {step: arrays(step, clouds())["map/layer_02/cls"] for step in STEPS}
    figure = maps(points, "a title", np.arange(12) % 2, ["no"])
    assert len(figure.axes) == 3
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["no", "label 1"]
    drawn = figure.axes[1].collections[1].get_offsets()
    np.testing.assert_allclose(drawn, points[20][1::2])


@pytest.mark.parametrize("rows", [[], [{"step": 0, "val/accuracy": 0.5}], ROWS[:1]])
def test_little_to_draw_is_drawn(rows):
    assert svg_text(curves(rows, "a title with $x_", "val/accuracy", [METRIC]))
    end = End(0, False)
    assert svg_text(heatmap(rows, METRIC, "cls"))
    assert svg_text(spectra({}, "*/cls", end))
    if not rows:
        assert "nothing logged" in svg_text(layer_curves(rows, METRIC, "cls"))


def test_two_figures_in_one_page_share_no_id():
    snapshots = {step: arrays(step, clouds()) for step in STEPS}
    svg = svg_text(spectra(snapshots, "*/cls", LAST))
    first, second = (inline(svg, name, "text") for name in ("f1", "f2"))
    ids = [set(re.findall(r'\bid="([^"]*)"', part)) for part in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for part, known in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:url\(|href=")#([^")]*)', part)) <= known
    assert {"0", "1", "2"} == set(re.findall(r'data-layer="(\d)"', first))
    assert svg_text(spectra(snapshots, "*/cls", LAST)) == svg  # the same data, the same file
