"""Figures of logged rows and snapshots, as matplotlib Figures. No pyplot, no global state.

L layers, E evaluations, M points of a map, S eigenvalues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from isotrain.keys import DEV, VIEWS, Place
from isotrain.pages.readings import label
from isotrain.pages.rows import (
    Rows,
    Series,
    headline,
    isotropy_places,
    layers_of,
    measured,
    n_rows,
    series,
)

TITLES = {"cls": "CLS", "tokens": "tokens", "mean": "mean of tokens"}  # of views
AROUND = "around the isotropy layer"
SIZE = (3.5, 2.6)  # inches of one panel: a column of a paper, the width of a phone
DARK, BRIGHT = 0.0, 0.88  # ends of the colour map of layers: yellow is too faint on white
N_RANKS = 60  # of a spectrum that are drawn, evenly on the logarithmic axis
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
Snapshots = Mapping[int, Mapping[str, np.ndarray]]


def curves(rows: Rows, title: str, score: str, metrics: Sequence[str] = ()) -> Figure:
    """One figure of a whole run: score and loss on top, then a row of panels for each metric.

    `rows` as in metrics.jsonl; `score` is the key of the task score, such as `val/accuracy`.
    The columns are the views of layers, and before/after each isotropy layer. Without `metrics`
    those are drawn that have a value for rows alone and no parts; where there is none, all.
    """
    places = isotropy_places(rows)
    metrics = list(metrics) or headline({}, measured(places))
    views = [view for view in VIEWS if layers_of(places, view)] or list(VIEWS)
    size = (SIZE[0] * (len(views) + 1), SIZE[1] * (1 + len(metrics)))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, parse_math=False)
    grid = figure.subplots(1 + len(metrics), len(views) + 1, squeeze=False)
    for axis in grid[0, 2:]:
        axis.axis("off")
    draw_score(grid[0, 0], rows, score)
    draw_loss(grid[0, 1], rows)
    for axes, metric in zip(grid[1:], metrics, strict=True):
        for axis, view in zip(axes, views, strict=False):
            draw_layers(axis, rows, metric, view)
        draw_sites(axes[-1], rows, metric)
        axes[0].set_ylabel(label(metric), parse_math=False)
    names = sorted({layer for view in views for layer in layers_of(places, view)})
    if names:
        lines = [matplotlib.lines.Line2D([], [], color=c) for c in layer_colours(len(names))]
        columns = min(7, len(names))
        figure.legend(lines, names, loc="outside lower center", ncols=columns, fontsize=8)
    return figure


def score_curve(rows: Rows, score: str, chosen: float | None = None) -> Figure:
    """The task score on dev over the steps; `chosen` marks the step whose weights were kept."""
    figure, axis = _panel()
    draw_score(axis, rows, score)
    if chosen is not None:
        axis.axvline(chosen, color="0.4", linewidth=1, linestyle=":")
        axis.annotate(" weights kept", (chosen, 0.03), xycoords=("data", "axes fraction"))
    return figure


def loss_curve(rows: Rows) -> Figure:
    """Training loss, its parts where there are several, and the loss on dev."""
    figure, axis = _panel()
    draw_loss(axis, rows)
    return figure


def layer_curves(rows: Rows, metric: str, view: str, source: str = DEV) -> Figure:
    """A metric over the steps at one view of every layer, a line each, with its null band."""
    figure, axis = _panel()
    draw_layers(axis, rows, metric, view, source)
    return figure


def site_curves(rows: Rows, metric: str, source: str = DEV) -> Figure:
    """A metric over the steps before (dashed) and after (solid) each isotropy layer."""
    figure, axis = _panel()
    draw_sites(axis, rows, metric, source)
    return figure


def heatmap(rows: Rows, metric: str, view: str) -> Figure:
    """A metric at one view as colours: layers upwards, evaluations to the right.

    What has no value is grey.
    """
    figure, axis = _panel()
    places = isotropy_places(rows, metric)
    names = layers_of(places, view)
    found = {name: dict(places[Place(metric, name, view)]) for name in names}
    steps = sorted({step for values in found.values() for step in values})
    axis.set_title(f"{label(metric)}\n{TITLES.get(view, view)}", fontsize=8, parse_math=False)
    if not steps:
        _nothing(axis)
        return figure
    value_LE = np.array([[found[n].get(step, np.nan) for step in steps] for n in names])
    colours = matplotlib.colormaps["cividis"].with_extremes(bad="0.8")
    finite_LE = np.ma.masked_invalid(value_LE)
    image = axis.imshow(finite_LE, aspect="auto", origin="lower", cmap=colours, interpolation="none")
    every = np.unique(np.linspace(0, len(steps) - 1, 5).round().astype(int))
    axis.set_xticks(every, [f"{steps[i]:g}" for i in every])
    axis.set_yticks(range(len(names)), [str(int(name[-2:])) for name in names], fontsize=7)
    axis.set(xlabel="optimizer step of the evaluation", ylabel="layer")
    if finite_LE.count():
        figure.colorbar(image, ax=axis, pad=0.03)
    return figure


def layers(rows: Rows, metric: str, view: str) -> Figure:
    """A metric from the lowest to the highest layer, at the first and the last evaluation."""
    figure, axis = _panel()
    places = isotropy_places(rows, metric)
    names = layers_of(places, view)
    found = [places[Place(metric, name, view)] for name in names]
    for end, style in ((0, "o--"), (-1, "o-")) if found else ():
        step = f"step {found[0][end][0]:g}"
        values = [values[end][1] for values in found]
        fill = "white" if end == 0 else COLOURS[0]
        axis.plot(values, style, color=COLOURS[0], markerfacecolor=fill, markersize=4, label=step)
    axis.set_xticks(range(len(names)), [str(int(name[-2:])) for name in names])
    _finish(axis, bool(found), _title(rows, places, view), "layer")
    if found:
        axis.legend(fontsize=7, frameon=False)
    return figure


def spectra(snapshots: Snapshots, where: str) -> Figure:
    """Share of the variance against rank, both logarithmic: first (dashed) and last snapshot.

    `where` is a view, whose layers have a line each, or a site: before and after.
    """
    figure, axis = _panel()
    ends = list(dict.fromkeys([min(snapshots), max(snapshots)])) if snapshots else []
    clouds = sorted({c for step in ends for c in _spectra(snapshots, step) if where in c.split("/")})
    is_view = where in VIEWS
    colours = layer_colours(len(clouds)) if is_view else COLOURS
    for cloud, colour in zip(clouds, colours, strict=False):
        for step in ends:
            value_S = _spectra(snapshots, step).get(cloud)
            if value_S is None or not value_S.sum() > 0:
                continue
            rank_R = np.unique(np.geomspace(1, len(value_S), N_RANKS).round().astype(int))
            share_R = value_S[rank_R - 1] / value_S.sum()
            kept_R = share_R > 1e-9  # rounding of what is zero
            first = step == ends[0] and len(ends) > 1
            style: dict[str, Any] = {"linestyle": "--" if first else "-", "color": colour}
            gid = f"layer-{int(cloud[6:8])}" if is_view else None
            name = f"{cloud.split('/')[1]}, step {step}"
            axis.plot(rank_R[kept_R], share_R[kept_R], gid=gid, label=name, linewidth=1.2, **style)
    if axis.lines:
        axis.set(xscale="log", yscale="log", ylabel="share of the variance")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            side.set_minor_formatter(NullFormatter())
    counts = [int(snapshots[step].get(f"n_rows/{cloud}", 0)) for step in ends for cloud in clouds]
    n = f" · N = {max(counts):,}" if counts and max(counts) else ""
    _finish(axis, bool(axis.lines), TITLES.get(where, where) + n, "rank of the direction")
    if axis.lines and not is_view:
        axis.legend(fontsize=7, frameon=False)
    return figure


def maps(points: Mapping[int, np.ndarray], title: str, colour: np.ndarray | None = None) -> Figure:
    """The rows of a cloud in two dimensions, `[M, 2]` by step: first, middle and last, one scale.

    `colour [M]` are classes (few whole numbers) or scores.
    """
    steps = sorted(points)
    shown = list(dict.fromkeys(steps[i] for i in (0, len(steps) // 2, -1))) if steps else []
    figure = Figure(figsize=(2.6 * max(1, len(shown)), 2.9), layout="constrained")
    figure.suptitle(title, fontsize=9, parse_math=False)
    classes = [] if colour is None else np.unique(colour[np.isfinite(colour)])
    for number, step in enumerate(shown):
        axis = figure.add_subplot(1, len(shown), number + 1)
        point_M2 = points[step]
        if 0 < len(classes) <= len(COLOURS):
            for name, shade, mark in zip(classes, COLOURS, "os^Dv<>", strict=False):
                chosen = point_M2[colour[: len(point_M2)] == name]
                axis.scatter(*chosen.T, s=5, color=shade, marker=mark, label=f"label {name:g}")
        else:
            shades = None if colour is None else colour[: len(point_M2)]
            axis.scatter(*point_M2.T, s=5, c=shades, cmap="viridis" if shades is not None else None)
        axis.collections and [c.set_rasterized(True) for c in axis.collections]
        reach = max(float(np.nanmax(np.abs(points[s]))) for s in shown) * 1.05 or 1.0
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        axis.set_title(f"step {step}", fontsize=8)
    if shown and 0 < len(classes) <= len(COLOURS):
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=7)
    return figure
