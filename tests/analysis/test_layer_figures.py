"""Figures of measures over layers: what is drawn, and what is told where it is not."""

from __future__ import annotations

import math

import pytest
from matplotlib.colors import to_hex

from isotrain.analysis.layer_figures import MOST, Line, layer_figure, side_by_side
from isotrain.pages.panels import COLOURS
from isotrain.pages.svg import svg_text

RECORDS = [
    {"layer": 2, "value": 0.3, "error": 0.01},
    {"layer": 0, "value": 0.1, "error": None},
    {"layer": 1, "value": None, "error": 0.02},
    {"layer": 10, "value": 1, "error": 0.03},
]


def test_a_line_is_in_the_order_of_layers_and_has_gaps():
    line = Line.of("a", RECORDS, "value", "error")
    assert line.layers == [0, 1, 2, 10]
    assert line.values[0] == 0.1
    assert math.isnan(line.values[1])
    assert line.values[2:] == [0.3, 1.0]
    assert math.isnan(line.errors[0])
    assert line.errors[1:] == [0.02, 0.01, 0.03]
    assert Line.of("a", RECORDS, "value").errors is None
    assert all(math.isnan(v) for v in Line.of("a", RECORDS, "no such column").values)


def drawn(figure, panel=0):
    return figure.axes[panel].get_lines()


def test_lines_bands_and_names():
    figure = layer_figure([Line.of("a $b_c$", RECORDS, "value", "error")] * 2, "t_1 $x$", "cosine")
    axis = figure.axes[0]
    assert axis.get_title() == "t_1 $x$"
    assert axis.get_ylabel() == "cosine"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a $b_c$"] * 2
    band = axis.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(1 + 1.96 * 0.03)
    assert "$x$" in svg_text(figure)  # a word of a corpus is no formula


def test_a_single_line_needs_no_legend():
    assert layer_figure([Line.of("a", RECORDS, "value")], "t").axes[0].get_legend() is None


def test_no_two_lines_look_alike():
    lines = [Line(str(k), [0, 1], [k, k]) for k in range(MOST)]
    looks = {
        (to_hex(one.get_color()), one.get_marker(), one.get_linestyle())
        for one in drawn(layer_figure(lines, "t"))
    }
    assert len(looks) == MOST > len(COLOURS)


def test_before_is_dashed_and_a_mean_dotted():
    lines = [
        Line("before, adjusted", [0, 1], [0, 1], colour=3),
        Line("after, adjusted", [0, 1], [0, 1], colour=3),
        Line("mean", [0, 1], [0, 1], is_mean=True),
    ]
    looks = [
        (to_hex(one.get_color()), one.get_linestyle()) for one in drawn(layer_figure(lines, "t"))
    ]
    assert looks == [(COLOURS[3], "--"), (COLOURS[3], "-"), ("#000000", ":")]


def test_lines_that_are_too_many_are_told():
    lines = [Line(str(k), [0, 1], [k, k]) for k in range(MOST + 3)]
    figure = layer_figure(lines, "words")
    assert len(drawn(figure)) == MOST
    assert figure.axes[0].get_title() == f"words (the first {MOST} of {MOST + 3})"


def test_panels_share_their_scale():
    low, high = Line("a", [0, 1], [0, 1]), Line("b", [0, 1], [5, 9])
    figure = side_by_side({"before": [low, high], "after": [low]}, "two", "cosine")
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("before", "after")
    assert first.get_ylim() == second.get_ylim()
    assert figure.get_suptitle() == "two"
    alone = side_by_side({"as given": [low]}, "one")
    assert [axis.get_title() for axis in alone.axes] == [""]
