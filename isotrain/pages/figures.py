"""matplotlib Figures of logged records. No pyplot, no global state."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from isotrain.pages.panels import (
    SIZE,
    draw_layers,
    draw_loss,
    draw_score,
    draw_sites,
    finish,
    joined,
    layer_colours,
    layer_number,
    panel,
)
from isotrain.results.numbers import minus
from isotrain.results.readings import TITLES, label
from isotrain.results.series import Rows, isotropy_series, layers_of, n_rows
from isotrain.runs.keys import VIEWS, CurveKey

HEAT = (0.12, 0.17, 0.66, 0.70)  # of a panel, next to the colour bar and its label


def curves(rows: Rows, title: str, score: str, metrics: Sequence[str]) -> Figure:
    """One figure of a whole run: score and loss on top, then one row of panels per metric.

    `rows` as in metrics.jsonl; `score` is the key of the task score, such as `val/accuracy`. The
    columns are the views of layers, and before/after each isotropy layer.
    """
    by_key = isotropy_series(rows)
    views = [view for view in VIEWS if layers_of(by_key, view)] or list(VIEWS)
    size = (SIZE[0] * (len(views) + 1), SIZE[1] * (1 + len(metrics)))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, parse_math=False)
    grid = figure.subplots(1 + len(metrics), len(views) + 1, squeeze=False)
    for axis in grid[0, 2:]:
        axis.axis("off")
    draw_score(grid[0, 0], rows, score)
    draw_loss(grid[0, 1], rows)
    for axes, metric in zip(grid[1:], metrics, strict=True):
        axes[0].set_ylabel(label(metric), parse_math=False)
        for axis, view in zip(axes, views, strict=False):
            draw_layers(axis, rows, metric, view)
        draw_sites(axes[-1], rows, metric)
    names = sorted({layer for view in views for layer in layers_of(by_key, view)})
    if names:
        lines = [Line2D([], [], color=colour) for colour in layer_colours(names).values()]
        columns = min(7, len(names))
        figure.legend(lines, names, loc="outside lower center", ncols=columns, fontsize=8)
    return figure


def score_curve(
    rows: Rows,
    score: str,
    chosen: float | None = None,
    level: tuple[str, float] | None = None,
) -> Figure:
    """The task score over steps, and a named model-free baseline (`level`).

    `chosen` marks the step of the selected weights.
    """
    figure, axis = panel()
    draw_score(axis, rows, score, level)
    if chosen is not None:
        axis.axvline(chosen, color="0.4", linewidth=1, linestyle=":")
        at = ("data", "axes fraction")
        axis.annotate("weights kept ", (chosen, 0.03), xycoords=at, ha="right", fontsize=7)
    return figure


def loss_curve(rows: Rows) -> Figure:
    """Training loss, its parts if there are several, and dev loss."""
    figure, axis = panel()
    draw_loss(axis, rows)
    return figure


def heatmap(rows: Rows, metric: str, view: str) -> Figure:
    """Heatmap of a metric at one view of every layer: evaluations to the right, layers upwards.

    Missing values are white with a cross.
    """
    figure, axis = panel()
    axis.set_position(HEAT)
    by_key = isotropy_series(rows, metric)
    names = layers_of(by_key, view)
    found = {name: dict(by_key[CurveKey(metric, name, view)]) for name in names}
    steps = sorted({step for values in found.values() for step in values})
    if steps:
        values = np.array([[found[name].get(step, np.nan) for step in steps] for name in names])
        colours = matplotlib.colormaps["viridis"].with_extremes(bad="white")
        finite = np.ma.masked_invalid(values)
        how = {"aspect": "auto", "origin": "lower", "interpolation": "none"}
        image = axis.imshow(finite, cmap=colours, **how)  # type: ignore[arg-type]
        for layer, step in np.argwhere(~np.isfinite(values)):
            axis.plot(step, layer, "x", color="0.4", markersize=5)
        every = np.unique(np.linspace(0, len(steps) - 1, 5).round().astype(int))
        axis.set_xticks(every, [f"{steps[i]:.0f}" for i in every])
        axis.set_yticks(range(len(names)), [str(layer_number(name)) for name in names])
        axis.set_ylabel("layer")
        if finite.count():
            side = figure.add_axes((HEAT[0] + HEAT[2] + 0.02, HEAT[1], 0.03, HEAT[3]))
            bar = figure.colorbar(image, cax=side)
            bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: minus(f"{value:.4g}")))
            bar.ax.tick_params(labelsize=7)
            middle = HEAT[1] + HEAT[3] / 2
            look: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "fontsize": 7}
            figure.text(0.995, middle, label(metric), parse_math=False, **look)
    shown = [curve for curve in by_key if curve.view == view]
    title = joined(TITLES[view], n_rows(rows, shown))
    finish(axis, title, "optimizer step of the evaluation")
    return figure
