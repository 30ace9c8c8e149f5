"""Charts of a study that compare methods."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from isotrain.pages.charts import (
    ALL,
    COLOURS,
    GREY,
    Spec,
    by,
    chart,
    faded,
    has_value,
    mark,
    only,
    quantity,
    scale,
    step_axis,
    tooltip,
)
from isotrain.pages.run_charts import layer_number
from isotrain.results.curves import Curve
from isotrain.results.frame import Row, paired
from isotrain.results.names import cloud_name, examples_text, score_name
from isotrain.results.readings import SIDE_TITLES, label
from isotrain.results.runs import Run
from isotrain.results.statistics import Summary
from isotrain.results.verdicts import verdict
from isotrain.results.words import difference_text
from isotrain.runs.keys import VIEWS, CurveKey
from isotrain.runs.numbers import is_share

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left")
DASHES = ([1, 0], [5, 2], [2, 2], [5, 2, 2, 2])
ROW = 34  # pixels of a method in a chart of differences
METHOD = by("method", ALL)


def looks(methods: Sequence[str]) -> Spec:
    """Channels that distinguish methods, the baseline first: grey and dashed.

    Methods after the first seven have other pairs of colour, marker and dash.
    """
    n, grey = len(methods) - 1, COLOURS[-1]
    colours = COLOURS[:-1]
    laps = [divmod(k, len(colours)) for k in range(n)]
    channel = {"field": "method", "type": "nominal"}
    shapes = [SHAPES[0], *(SHAPES[(1 + k + lap) % len(SHAPES)] for lap, k in laps)]
    dashes = [DASHES[1], *(DASHES[lap % len(DASHES)] for lap, _ in laps)]
    return {
        "color": {**channel, "scale": scale(methods, [grey, *(colours[k] for _, k in laps)])},
        "shape": {**channel, "scale": scale(methods, shapes)},
        "strokeDash": {**channel, "scale": scale(methods, dashes)},
    }


def unit_of(score: str) -> tuple[float, str]:
    """Factor of a score on an axis, and its unit."""
    return (100.0, ", points") if is_share(score) else (1.0, "")


def differences(
    rows: Sequence[Row],
    runs: Sequence[Run],
    methods: Sequence[str],
    published: Mapping[str, float] = MappingProxyType({}),
) -> Spec:
    """Difference of each method to the baseline on one score, with 95 % CI over seeds.

    A filled marker is significant at 5 % (Holm-corrected), without collapsed runs. Faint dots are
    single seeds, the thin line is the CI over seeds and examples; a cross is the `published`
    difference of a method, the grey band the equivalence margin.
    """
    score, baseline = rows[0].score, methods[0]
    factor, unit = unit_of(score)

    def scaled(value: float | None) -> float | None:
        return None if value is None else factor * value

    values = [
        {
            "method": row.method,
            "difference": scaled(row.difference),
            "low": scaled(row.difference_low),
            "high": scaled(row.difference_high),
            "both_low": scaled(row.both_low),
            "both_high": scaled(row.both_high),
            "seeds": [
                factor * (own.scores[score] - of.scores[score])
                for own, of in paired(runs, score, row.method, baseline)
            ],
            "published": scaled(published.get(row.method)),
            "is_shown": verdict(row) in ("higher", "lower"),
            "text": difference_text(row),
        }
        for row in rows
    ]
    margin = factor * max((row.margin or 0.0 for row in rows), default=0.0)
    names = [row.method for row in rows]
    look = looks(methods)
    colour, shape = look["color"] | {"legend": None}, look["shape"] | {"legend": None}
    nominal = {"type": "nominal", "sort": names, "title": None, "axis": {"labelLimit": 150}}
    y = {"field": "method", **nominal, "scale": {"paddingInner": 0.1, "paddingOuter": 0.1}}
    title = f"difference to {baseline}, paired by seed{unit}"
    x = quantity("difference", title, axis={"tickCount": 6})
    opacity = faded("method")
    rule = {"color": colour, "y": y, "opacity": opacity}
    fill = {"condition": {"test": "datum.is_shown", **colour}, "value": "white"}
    band = {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}}
    full_ci = {**rule, "x": quantity("both_low", title), "x2": {"field": "both_high"}}
    seed_ci = {**rule, "x": quantity("low", title), "x2": {"field": "high"}}
    seeds = {**rule, "x": quantity("seeds", title), "opacity": faded("method", 0.6)}
    mean = {**rule, "x": x, "fill": fill, "shape": shape, "tooltip": tooltip("method", "text")}
    cross = {"y": y, "x": quantity("published", title), "opacity": opacity}
    annotation = {**rule, "text": {"field": "text"}, "x": {"value": "width"}}
    layer = [
        mark("rect", band, values=[{"from": -margin, "to": margin}], color="#e4e4e4"),
        mark("rule", {"x": {"datum": 0}}, values=[{}], color=GREY),
        mark("point", seeds, {"flatten": ["seeds"]}, filled=True, size=16),
        mark("rule", full_ci, strokeWidth=1, yOffset=12),
        mark("rule", seed_ci, strokeWidth=2.5, yOffset=7),
        mark("point", mean, size=70, opacity=1, yOffset=7),
        mark(
            "point", cross, has_value("published"), shape="cross", color=GREY, angle=45, yOffset=7
        ),
        mark("text", annotation, align="right", fontSize=10, yOffset=-8),
    ]
    text = f"differences to {baseline} on {rows[0].task}, {score_name(score)}"
    subtitle = examples_text(rows[0].examples)
    head = {"text": f"{rows[0].task}: {score_name(score)}", "subtitle": subtitle}
    return chart(
        values, head, text, layer if margin else layer[1:], params=[METHOD], height=ROW * len(rows)
    )


def against_isotropy(
    runs: Sequence[Run], score: str, isotropy_keys: Mapping[str, CurveKey], methods: Sequence[str]
) -> Spec:
    """A score against a selectable isotropy value: small points are runs, large ones means.

    Runs with collapsed predictions are hollow and included in the means.
    """
    factor, unit = unit_of(score)
    values = [
        {
            "place": place,
            "method": run.method,
            "seed": run.seed,
            "x": run.scores[key.text],
            "y": factor * run.scores[score],
            "is_collapsed": bool(run.degenerate),
        }
        for place, key in isotropy_keys.items()
        for run in runs
        if {key.text, score} <= run.scores.keys()
    ]
    look = looks(methods)
    axes = {"x": quantity("x", "isotropy"), "y": quantity("y", score_name(score) + unit)}
    common = {**axes, "color": look["color"], "shape": look["shape"]}
    hollow = {"condition": {"test": "datum.is_collapsed", "value": "white"}, **look["color"]}
    run_tooltip = tooltip("method", "seed", "x", "y")
    run_points = {**common, "fill": hollow, "opacity": faded("method", 0.5), "tooltip": run_tooltip}
    mean_points = {**common, "opacity": faded("method"), "tooltip": tooltip("method", "x", "y")}
    aggregates = [{"op": "mean", "field": name, "as": name} for name in "xy"]
    by_method = {"aggregate": aggregates, "groupby": ["method"]}
    edge: Spec = {"stroke": "black", "strokeWidth": 1, "filled": True, "size": 130}
    return chart(
        values,
        {"text": runs[0].task, "subtitle": {"expr": "place"}},
        f"{score_name(score)} on {runs[0].task} over isotropy",
        [mark("point", run_points, size=35), mark("point", mean_points, by_method, **edge)],
        params=[METHOD, by("place", next(iter(isotropy_keys)))],
        transform=only(place="place"),
    )


def by_layer(
    curves: Sequence[Curve], view: str, methods: Sequence[str], titles: Mapping[str, str]
) -> Spec:
    """Final value of a selectable metric over layers: mean of each method, with its 95 % CI."""
    view_curves = [curve for curve in curves if curve.key.view == view and curve.end]
    values: list[Spec] = [
        {"metric": label(c.key.metric), "method": c.method, "x": layer_number(c.key.where)}
        | _ends(c.end)
        for c in view_curves
        if c.end
    ]
    ticks = {"values": sorted({row["x"] for row in values}), "format": "d"}
    x = quantity("x", "layer", axis=ticks, scale={"zero": False})
    return _lines(values, f"{view_curves[0].task}: {titles[view]}", methods, x)


def around_site(curves: Sequence[Curve], site: str, methods: Sequence[str]) -> Spec:
    """Final value of a selectable metric at the input and output of a site, with 95 % CIs.

    Methods without a layer there show the head's input as output.
    """
    site_curves = [curve for curve in curves if curve.key.where == site and curve.end]
    values = [
        {"metric": label(c.key.metric), "method": c.method, "x": SIDE_TITLES[c.key.view]}
        | _ends(c.end)
        for c in site_curves
        if c.end
    ]
    x: Spec = {"field": "x", "type": "nominal", "sort": [*SIDE_TITLES.values()], "title": None}
    x["axis"] = {"labelAngle": 0}
    offset = {"field": "method", "type": "nominal", "sort": [*methods]}
    look = looks(methods)
    common = {"x": x, "xOffset": offset, "color": look["color"], "opacity": faded("method")}
    interval = {**common, "y": quantity("low"), "y2": {"field": "high"}}
    mean = {**common, "shape": look["shape"], "y": quantity("mean"), "tooltip": NAMED}
    return chart(
        values,
        {"text": f"{site_curves[0].task}: site {site}", "subtitle": {"expr": "metric"}},
        f"isotropy around site {site} on {site_curves[0].task}",
        [mark("rule", interval), mark("point", mean, filled=True, size=50)],
        params=[METHOD, by("metric", values[0]["metric"])],
        transform=only(metric="metric"),
    )


def through_training(curves: Sequence[Curve], methods: Sequence[str]) -> Spec:
    """A selectable metric and cloud over optimizer steps, one line per method with 95 % CI."""
    values = [
        {
            "metric": label(curve.key.metric),
            "cloud": cloud_name(curve.key),
            "method": curve.method,
            **{name: [getattr(point, name) for point in curve.points.values()] for name in POINT},
            "step": [*curve.points],
        }
        for curve in curves
    ]
    spec = _lines(values, curves[0].task, methods, step_axis())
    spec["title"]["subtitle"] = {"expr": "metric + ', ' + cloud"}
    spec["params"].append(by("cloud", values[0]["cloud"]))
    spec["transform"] += [*only(cloud="cloud"), {"flatten": ["step", *POINT]}]
    return spec


POINT = ("n", "mean", "low", "high")
NAMED = tooltip("method", *POINT)


def _ends(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in POINT}


def _lines(
    values: Sequence[Mapping[str, Any]],
    title: str,
    methods: Sequence[str],
    x: Spec,
) -> Spec:
    """Means with CI bands over `x`, for a selectable metric."""
    look = looks(methods)
    head = {"text": title, "subtitle": {"expr": "metric"}}
    line = {"x": x, "y": quantity("mean"), **look, "opacity": faded("method"), "tooltip": NAMED}
    band = {"x": x, "y": quantity("low"), "y2": {"field": "high"}, "color": look["color"]}
    band["opacity"] = faded("method", 0.12)
    return chart(
        values,
        head,
        f"{title}, isotropy of each method",
        [mark("area", band, has_value("low")), mark("line", line, point=True)],
        params=[METHOD, by("metric", values[0]["metric"])],
        transform=only(metric="metric"),
    )


def shown_curves(curve_keys: Iterable[CurveKey]) -> list[CurveKey]:
    """Clouds to follow through training: layers by view, highest first, then sites."""
    curves = {*curve_keys}
    layers = sorted((c for c in curves if c.view in VIEWS), key=lambda c: c[1:3], reverse=True)
    sites = sorted((c for c in curves if c.view not in VIEWS), key=lambda c: (c.where, c.view))
    return sorted(layers, key=lambda c: c.view != "tokens") + sites
