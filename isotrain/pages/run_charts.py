"""Charts of a run: score and loss, isotropy of layers and sites, spectra, maps of embeddings."""

import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isotrain.pages.charts import (
    ALL,
    COLOURS,
    GREY,
    LAYERS,
    POINT,
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
from isotrain.results.readings import SIDE_TITLES, TITLES, base_of, label, readings, view_titles
from isotrain.results.series import (
    End,
    Rows,
    Series,
    isotropy_series,
    layers_of,
    measured,
    n_rows,
    series,
)
from isotrain.runs.keys import TRAINING, VIEWS, CurveKey
from isotrain.runs.numbers import is_share

NUMBERED = ("_2", "_3")  # parts of a metric that a table alone has
N_RANKS = 60  # of a spectrum that are drawn, evenly on the logarithmic axis
LEAST = 1e-6  # share of the largest below which nothing is drawn
DASH = [5, 3]
Curves = Mapping[CurveKey, Series]
Snapshots = Mapping[int, Mapping[str, np.ndarray]]  # by step


def score_chart(
    rows: Rows,
    score: str,
    selected_step: float | None = None,
    level: tuple[str, float] | None = None,
) -> Spec:
    """The task score over steps, and a named model-free baseline (`level`).

    `score` is its key on dev, such as `val/accuracy`; `selected_step` that of the selected weights.
    """
    name, unit = score.partition("/")[2], 100 if is_share(score) else 1
    kinds = {"val": "dev", "holdout": "held out", "test": "test"}
    values = [
        {"step": step, "value": unit * value, "of": kind}
        for stage, kind in kinds.items()
        for step, value in series(rows, f"{stage}/{name}")
    ]
    splits = dict.fromkeys(str(row["of"]) for row in values)
    shapes = {split: "diamond" if split == "test" else "circle" for split in splits}
    layer = _lines(shapes, shapes)
    rule: Spec = {"color": GREY, "strokeDash": [2, 2]}
    font: Spec = {"color": GREY, "fontSize": 10}
    if level is not None and level[1]:  # a correlation of 0 would flatten the curve
        y = {"datum": unit * level[1]}
        text = {"y": y, "x": {"value": 3}, "text": {"value": level[0]}}
        layer += [mark("rule", {"y": y}, **rule), mark("text", text, align="left", dy=-5, **font)]
    if selected_step is not None:
        x = {"datum": selected_step}
        text = {"x": x, "y": {"value": 8}, "text": {"value": "weights kept"}}
        layer.append(mark("rule", {"x": x}, **rule))
        layer.append(mark("text", text, align="right", dx=-3, **font))
    title = name.replace("_", " ") + ", points" * (unit > 1)
    return chart(values, title, f"{score} over the optimizer steps", layer)


def loss_chart(rows: Rows) -> Spec:
    """Training loss, its parts if there are objectives, and dev loss."""
    keys = {key for row in rows for key in row if key.startswith("train/") and key.count("/") == 1}
    parts = sorted(keys - {"train/loss", "train/task_loss"})
    names = {"train/loss": "training"}
    names |= {key: key[6:].replace("_", " ") for key in ["train/task_loss", *parts] if parts}
    names["val/loss"] = "dev"
    values = [
        {"step": step, "value": value, "of": name}
        for key, name in names.items()
        for step, value in series(rows, key)
    ]
    labels = list(dict.fromkeys(str(row["of"]) for row in values))
    layer = _lines(labels, {"dev": "circle"})
    return chart(values, "loss", "training and dev loss over the optimizer steps", layer)


def _lines(names: Collection[str], pointed: Mapping[str, str]) -> list[Spec]:
    """Lines of `value` over `step`, one for each of `of`; points of those that have a shape."""
    channel = {"field": "of", "type": "nominal"}
    line = {
        "x": step_axis(),
        "y": quantity("value"),
        "color": {**channel, "scale": scale([*names], COLOURS)},
        "tooltip": tooltip("of", "step", "value"),
    }
    shapes = [pointed.get(name, "stroke") for name in names]
    shape = {**channel, "scale": scale([*names], shapes)}  # of one legend with the colours
    subset = {"filter": {"field": "of", "oneOf": [*pointed]}}
    points = {**line, "shape": shape}
    return [mark("line", line), mark("point", points, subset, filled=True, size=POINT, opacity=1)]


class Isotropy(NamedTuple):
    """The isotropy of a run as records for charts.

    Attributes:
        metrics: how to read each of them, by title; what is shown first comes first.
        views: titles of the measured views of layers by name, the tokens first.
        layers: for each metric, view and layer its `step` and `value`.
        sites: for each metric, site and side the same, with the `low` and `high` ends of the null.
    """

    metrics: dict[str, str]
    views: dict[str, str]
    layers: list[dict[str, Any]]
    sites: list[dict[str, Any]]


def isotropy_of(
    result: Mapping[str, Any], rows: Rows, curves: Curves, shown: Sequence[str]
) -> Isotropy:
    """All measured values, `shown` metrics first, then those of training batches."""
    titles, training_curves = view_titles(result), isotropy_series(rows, source=TRAINING)
    order = [v for v in ("tokens", *VIEWS) if layers_of(curves, v) or layers_of(training_curves, v)]
    views = {
        view: _view_title(titles[view], n_rows(curves, view), n_rows(training_curves, view))
        for view in dict.fromkeys(order)
    }
    isotropy = Isotropy({}, views, [], [])
    for source_curves, note in ((curves, ""), (training_curves, ", training batches")):
        names = [m for m in measured(source_curves) if not m.endswith(NUMBERED)]
        for metric in sorted(names, key=lambda m: [*shown, m].index(m)):
            reading, title = readings().get(base_of(metric)), label(metric) + note
            isotropy.metrics[title] = reading.text if reading else ""
            by_curve = {c: values for c, values in source_curves.items() if c.metric == metric}
            for view in views:
                isotropy.layers.extend(
                    {
                        "metric": title,
                        "view": views[view],
                        "layer": layer_number(name),
                        **_columns(
                            by_curve[next(c for c in by_curve if (c.where, c.view) == (name, view))]
                        ),
                    }
                    for name in layers_of(by_curve, view)
                )
            ordered = sorted(by_curve, key=lambda c: (c.where, c.view == "after"))
            site_curves = [c for c in ordered if c.view not in VIEWS]
            isotropy.sites.extend(_site(source_curves, c, by_curve, title) for c in site_curves)
    return isotropy


def _view_title(title: str, size: str, training_size: str) -> str:
    """A view with its numbers of embeddings, on dev and in training batches."""
    of_training = f"; training batches, {training_size}" if training_size else ""
    return (f"{title}, {size}" if size else title) + of_training


def _columns(values: Series) -> dict[str, list[float]]:
    return {"step": [step for step, _ in values], "value": [value for _, value in values]}


def _site(of_source: Curves, p: CurveKey, curves: Curves, title: str) -> dict[str, Any]:
    has_no_layer = p._replace(view="before") not in curves
    row: dict[str, Any] = {
        "metric": title,
        "of": p.where if has_no_layer else f"{p.where}, {SIDE_TITLES[p.view]}",
        "site": p.where,
        **_columns(curves[p]),
    }
    for end in ("low", "high"):
        null = dict(of_source.get(p._replace(metric=f"{p.metric}_null_{end}"), ()))
        row[end] = [null.get(step, math.nan) for step in row["step"]]
    return row


def layer_number(name: str) -> int:
    """The number of a layer."""
    return int(name.removeprefix("layer_"))


FLATTENED = ["step", "value"]


def heat_map(isotropy: Isotropy, metric: str = "", view: str = "") -> Spec:
    """A metric at one view of every layer: evaluations to the right, layers upwards.

    A missing value is white with a cross. `metric` and `view` are names, and are shown first.
    """
    axes = {
        "x": {"field": "step", "type": "ordinal", "title": "optimizer step of the evaluation"}
        | {"axis": {"labelAngle": 0}},
        "y": {"field": "layer", "type": "ordinal", "sort": "descending"},
    }
    white = {"test": "!isValid(datum.value)", "value": "white"}
    legend = {"orient": "right", "gradientLength": HEAT, "columns": 1, "tickCount": 5}
    colour = quantity("value", scale={"scheme": "viridis", "zero": False}, legend=legend)
    cell = {**axes, "color": {"condition": white, **colour}}
    title = label(metric) if metric else next(iter(isotropy.metrics))
    view_title = isotropy.views[view or next(iter(isotropy.views))]
    missing = {"filter": "!isValid(datum.value)"}
    return chart(
        isotropy.layers,
        {"text": {"expr": "metric"}, "subtitle": {"expr": "view"}},
        "A metric of every layer at every evaluation, as colours",
        [
            mark("rect", {**cell, "tooltip": tooltip("layer", *FLATTENED)}),
            mark("text", axes, missing, text="×", color=GREY),
        ],
        params=[by("metric", title), by("view", view_title)],
        transform=[*only(metric="metric", view="view"), {"flatten": FLATTENED}],
    )


HEAT = 190  # pixels of its legend


def site_chart(isotropy: Isotropy) -> Spec:
    """A metric of the input (dashed) and output of each isotropy layer, with its null band."""
    names = list(dict.fromkeys(row["of"] for row in isotropy.sites))
    sites = list(dict.fromkeys(row["site"] for row in isotropy.sites))
    colours = {
        row["of"]: COLOURS[sites.index(row["site"]) % len(COLOURS)] for row in isotropy.sites
    }
    inputs = [name.endswith(SIDE_TITLES["before"]) for name in names]
    colour = {
        "field": "of",
        "type": "nominal",
        "scale": scale(names, [colours[name] for name in names]),
        "legend": {"symbolType": "stroke", "symbolSize": 300, "symbolOpacity": 1, "columns": 2},
    }
    dashes = [DASH if is_input else [1, 0] for is_input in inputs]
    dash = {"field": "of", "type": "nominal", "scale": scale(names, dashes)}
    band = {"x": step_axis(), "y": quantity("low"), "y2": {"field": "high"}, "color": colour}
    line: Spec = {"x": step_axis(), "y": quantity("value"), "color": colour, "strokeDash": dash}
    line["tooltip"] = tooltip("of", *FLATTENED, "low", "high")
    return chart(
        isotropy.sites,
        "layer input and output" if any(inputs) else "what the head reads",
        "A metric of the input and output of isotropy layers over the optimizer steps",
        [mark("area", band, has_value("low"), opacity=0.15), mark("line", line, point=True)],
        params=[by("metric", next(iter(isotropy.metrics)))],
        transform=[*only(metric="metric"), {"flatten": [*FLATTENED, "low", "high"]}],
    )


def clouds_of(arrays: Mapping[str, np.ndarray], pattern: str) -> list[str]:
    """The clouds with a spectrum, of a view (`*/cls`) or of a site (`pooled/*`)."""
    names = [key.removeprefix("spectrum/") for key in arrays if key.startswith("spectrum/")]
    return sorted(fnmatch.filter(names, pattern))


def spectra_chart(
    snapshots: Snapshots, clouds: str, end: End, titles: Mapping[str, str] = TITLES
) -> Spec:
    """Share of the variance against rank, both logarithmic, at the first snapshot and at `end`.

    `clouds` is `*/<view>`, with a line for each layer, or `<site>/*`: input and output. The first
    snapshot is dashed.
    """
    steps = [s for s in dict.fromkeys([min(snapshots, default=0), end.step]) if s in snapshots]
    is_layers, values, n = clouds.startswith("*/"), [], 0
    for step in steps:
        for name in clouds_of(snapshots[step], clouds):
            where, view = name.split("/")
            eigenvalues = snapshots[step][f"spectrum/{name}"]
            n = max(n, int(snapshots[step].get(f"n_rows/{name}", 0)))
            if not eigenvalues.sum() > 0:
                continue
            ranks = np.unique(np.geomspace(1, len(eigenvalues), N_RANKS).round().astype(int))
            shares = eigenvalues[ranks - 1] / eigenvalues.sum()
            line_name = str(layer_number(where)) if is_layers else SIDE_TITLES.get(view, view)
            values.append(
                {
                    "layer": line_name,
                    "at": end.name if step == end.step else f"step {step}",
                    "rank": ranks.tolist(),
                    "share": np.where(shares > LEAST * shares[0], shares, np.nan).tolist(),
                }
            )
    names = list(dict.fromkeys(row["layer"] for row in values))
    time_labels = list(dict.fromkeys(row["at"] for row in values))
    colour: Spec = {"field": "layer", "type": "nominal", "sort": None}
    if is_layers:
        colour |= {"type": "ordinal", "sort": names, "scale": LAYERS, "legend": {"columns": 8}}
    else:
        colour["scale"] = scale(names, COLOURS)
    dashes = [DASH, [1, 0]][-len(time_labels) :]
    log, ticks = {"type": "log", "nice": False}, {"format": "~g", "tickCount": 5}
    exponents = {**ticks, "format": "~e"}
    title = titles.get(clouds.removeprefix("*/"), f"site {clouds.removesuffix('/*')}")
    line = {
        "x": quantity("rank", "rank of the direction", scale=log, axis=ticks),
        "y": quantity("share", "share of the variance", scale=log, axis=exponents),
        "color": colour,
        "strokeDash": {"field": "at", "type": "nominal", "scale": scale(time_labels, dashes)},
        "opacity": faded("layer") if is_layers else {"value": 1},
        "tooltip": tooltip("layer", "at", "rank", "share"),
    }
    return chart(
        values,
        f"{title} · N = {n:,}" if n else title,
        f"share of the variance by rank of the direction, {title}",
        [mark("line", line, clip=True)],
        params=[by("layer", ALL)] if is_layers else [],
        transform=[{"flatten": ["rank", "share"]}],
    )
