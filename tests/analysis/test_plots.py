"""Pictures over layers: what is drawn, and what is reported where it is not."""

from types import SimpleNamespace

import pytest

from isotrain.analysis.charts import DASHED, DOTTED, SOLID, LinePlot, draw, scatter
from isotrain.analysis.show import Frames
from isotrain.pages.charts import COLOURS
from tests.pages.test_charts import scales, short, values

Z = 1.959963984540054


def record(layer, value, weights="as given", **more):
    return {"kind": "score", "weights": weights, "layer": layer, "value": value, **more}


def drawn(records, **options):
    given = {"of": "score", "y": {"value": "a $b_c$"}, **options}
    plot = LinePlot("p", given.pop("title", "t_1 $x$ of {analysis.n}"), "Of {analysis.n}.", **given)
    return list(draw(plot, Frames(records), SimpleNamespace(n=3)))


def chart_of(records, **options):
    (found,) = drawn(records, **options)
    (chart,) = found.specs
    return chart


def test_a_line_is_in_the_order_of_layers_and_its_band_is_the_95_percent_ci():
    records = [
        record(2, 0.3, value_error=0.01), record(0, 0.1, value_error=None),
        record(10, 1, value_error=0.03),
    ]  # fmt: skip
    (picture,) = drawn(records, ylabel="cosine")
    assert (picture.name, picture.title, picture.description) == ("p", "T_1 $x$ of 3", "Of 3.")
    (chart,) = picture.specs
    points = [(0, 0.1, None), (2, 0.3, 0.01), (10, 1, 0.03)]
    wanted = [
        {"x": x, "y": y}
        | {end: error and short(y + sign * Z * error) for end, sign in (("low", -1), ("high", 1))}
        for x, y, error in points
    ]
    assert [{k: row[k] for k in ("x", "y", "low", "high")} for row in values(chart)] == wanted
    y = chart["layer"][1]["encoding"]["y"]
    assert (y["field"], y["title"]) == ("y", "cosine")
    assert chart["layer"][1]["encoding"]["color"]["legend"] is None, "one line has no legend"


def test_a_band_between_the_ends_of_an_interval_and_a_null():
    more = {"value_low": 0.25, "value_high": 0.75, "null": 0.125}
    chart = chart_of([record(k, 0.5, **more) for k in (0, 1)], null="null")
    assert {(row["low"], row["high"], row["null"]) for row in values(chart)} == {
        (0.25, 0.75, 0.125)
    }
    assert chart["layer"][-1]["mark"]["strokeDash"] == DOTTED


def test_no_two_lines_look_alike():
    n_lines = len(COLOURS) + 3
    records = [record(layer, k, word=f"w{k}") for k in range(n_lines) for layer in (0, 1)]
    chart = chart_of(records, hue="word", y={"value": ""})
    colours, shapes = scales(chart, "color"), scales(chart, "shape")
    assert list(colours) == list(shapes) == [f"w{k}" for k in range(n_lines)]
    assert len({(colours[name], shapes[name]) for name in colours}) == n_lines


def test_before_is_dashed_and_a_reference_dotted():
    records = [record(k, k, w, chance=0.5) for w in ("before", "after") for k in (0, 1)]
    chart = chart_of(records, y={"value": "", "chance": "chance"}, reference=("chance",))
    dashes = {"before": DASHED, "after": SOLID, "before chance": DOTTED, "after chance": DOTTED}
    assert scales(chart, "strokeDash") == dashes
    colours = scales(chart, "color")
    assert colours == {name: "black" if "chance" in name else COLOURS[0] for name in dashes}


def test_a_panel_has_its_own_values_and_a_line_the_same_look_in_all():
    records = [record(k, 10 * k, task=task, word=task + "er") for task in "ab" for k in (0, 1)]
    (picture,) = drawn(records, panel="task", hue="word", y={"value": ""}, xlabel="on {task}")
    for chart, task in zip(picture.specs, "ab", strict=True):
        assert {row["line"] for row in values(chart)} == {task + "er"}
        assert (chart["title"], chart["layer"][1]["encoding"]["x"]["title"]) == (task, f"on {task}")
        assert scales(chart, "color") == {"aer": COLOURS[0], "ber": COLOURS[1]}
    assert [one.name for one in drawn(records, each="task", title="{task}")] == ["p", "p"]


def test_what_has_no_value_is_not_drawn():
    assert drawn([]) == []
    assert drawn([record(0, None)]) == []


def test_points_of_a_map_with_what_is_known_of_each():
    colour = {"field": "size", "type": "quantitative"}
    chart = scatter([[0.5, 1.0], [2.0, -1.0]], "t", "d", [3, 4], colour)
    assert values(chart) == [{"x": 0.5, "y": 1.0, "size": 3}, {"x": 2.0, "y": -1.0, "size": 4}]
    with pytest.raises(ValueError, match="zip"):
        scatter([[0.5, 1.0]], "t", "d", [3, 4], colour)
