"""The curves of a run as one PNG: score, and isotropy of every layer over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isotrain.keys import Place
from isotrain.pages.rows import LABELS, Series, isotropy_places, measured, series

COLUMNS = {"cls": "CLS of every layer", "tokens": "tokens of every layer"}


def draw_curves(rows: Sequence[dict[str, float]], path: str | Path, title: str, score: str) -> None:
    """Write a figure: `score` and training loss on top, then one row of panels per metric.

    `rows` as in metrics.jsonl; `score` is the key of the task score, such as `val/accuracy`.
    The columns are CLS, tokens, and before/after each isotropy layer.
    """
    places = isotropy_places(rows)
    metrics = measured(places)
    figure = Figure(figsize=(13, 3.1 * (1 + len(metrics))), layout="constrained")
    grid = figure.subplots(1 + len(metrics), 3, squeeze=False)
    figure.suptitle(title)
    _line(grid[0, 0], series(rows, score), score, marker="o")
    _line(grid[0, 1], series(rows, "train/loss"), "train/loss", linewidth=1)
    grid[0, 2].axis("off")
    grid[0, 2].text(0, 0.95, _row_counts(places), va="top", fontsize=9)
    layers = sorted({p.where for p in places if p.where.startswith("layer_") and p.view in COLUMNS})
    colours = matplotlib.colormaps["viridis"].resampled(max(2, len(layers)))
    for axes, metric in zip(grid[1:], metrics, strict=True):
        for axis, (view, heading) in zip(axes, COLUMNS.items(), strict=False):
            for number, layer in enumerate(layers):
                values = places.get(Place(metric, layer, view), [])
                _line(axis, values, heading, label=layer, color=colours(number), marker=".")
            axis.set_ylabel(LABELS.get(metric, metric))
        for place, values in sorted(places.items(), reverse=True):  # before, then after
            if place.metric == metric and place.view in ("before", "after"):
                style = "--" if place.view == "before" else "-"
                label = f"{place.where}, {place.view}"
                _line(axes[2], values, "around the isotropy layer", label=label, linestyle=style)
        if axes[2].lines:
            axes[2].legend(fontsize=8)
    if metrics:
        handles, labels = grid[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(7, len(labels)))
    figure.savefig(path, dpi=110)


def _line(axis: Axes, values: Series, title: str, **style: Any) -> None:
    axis.plot([step for step, _ in values], [value for _, value in values], **style)
    if not values:
        axis.text(0.5, 0.5, "nothing logged", ha="center", transform=axis.transAxes)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("optimizer step")
    axis.grid(alpha=0.3)


def _row_counts(places: dict[Place, Series]) -> str:
    counts = {
        p.view if p.view in COLUMNS else f"{p.where}, {p.view}": values[-1][1]
        for p, values in places.items()
        if p.metric == "n_rows" and values
    }
    return "rows measured at each evaluation\n" + "\n".join(
        f"{name}: N = {int(n):,}" for name, n in counts.items()
    )
