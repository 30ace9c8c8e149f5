"""Pictures over layers: what is drawn, and what is reported where it is not."""

from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex

from isotrain.analysis.show import Frames, LinePlot, draw
from isotrain.pages.page import svg_text
from isotrain.pages.panels import COLOURS

Z = 1.959963984540054


def record(layer, value, weights="as given", **more):
    return {"kind": "score", "weights": weights, "layer": layer, "value": value, **more}


def drawn(records, **options):
    given = {"of": "score", "y": {"value": "a $b_c$"}, **options}
    plot = LinePlot("p", given.pop("title", "t_1 $x$ of {analysis.n}"), "Of {analysis.n}.", **given)
    return list(draw(plot, Frames(records), SimpleNamespace(n=3)))


def looks(axis):
    return [
        (to_hex(line.get_color()), line.get_marker(), line.get_linestyle())
        for line in axis.get_lines()
    ]


def test_a_line_is_in_the_order_of_layers_and_its_band_is_the_95_percent_ci():
    records = [
        record(2, 0.3, value_error=0.01), record(0, 0.1, value_error=None),
        record(10, 1, value_error=0.03),
    ]  # fmt: skip
    (picture,) = drawn(records, ylabel="cosine")
    assert (picture.name, picture.title, picture.description) == ("p", "T_1 $x$ of 3", "Of 3.")
    (axis,) = picture.figure.axes
    (line,) = axis.get_lines()
    assert list(line.get_xdata()) == [0, 2, 10]
    assert list(line.get_ydata()) == [0.1, 0.3, 1]
    band = axis.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(1 + Z * 0.03)
    assert axis.get_ylabel() == "cosine"
    assert picture.figure.legends == []
    assert "$x$" in svg_text(picture.figure)  # a word of a corpus is no formula


def test_a_band_between_the_ends_of_an_interval():
    records = [record(k, 0.5, value_low=0.25, value_high=0.75) for k in (0, 1)]
    (picture,) = drawn(records)
    band = picture.figure.axes[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0.25, 0.75)


def test_no_two_lines_look_alike():
    n_lines = len(COLOURS) + 3
    records = [record(layer, k, word=f"w{k}") for k in range(n_lines) for layer in (0, 1)]
    (picture,) = drawn(records, hue="word", y={"value": ""})
    (axis,) = picture.figure.axes
    assert len(set(looks(axis))) == len(axis.get_lines()) == n_lines
    (legend,) = picture.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"w{k}" for k in range(n_lines)]


def test_before_is_dashed_and_a_reference_dotted():
    records = [record(k, k, w, chance=0.5) for w in ("before", "after") for k in (0, 1)]
    (picture,) = drawn(records, y={"value": "", "chance": "chance"}, reference=("chance",))
    (axis,) = picture.figure.axes
    assert [look[::2] for look in looks(axis)] == [
        (COLOURS[0], "--"), (COLOURS[0], "-"), ("#000000", ":"), ("#000000", ":"),
    ]  # fmt: skip
    assert [line.get_label() for line in axis.get_lines()][:3] == [
        "before", "after", "before chance",
    ]  # fmt: skip


def test_what_has_no_value_is_not_drawn():
    assert drawn([]) == []
    assert drawn([record(0, None)]) == []
