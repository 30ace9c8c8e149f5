"""Draw single panels of a figure on given axes."""

import math
from collections.abc import Iterable
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isotrain.results.numbers import is_share
from isotrain.results.readings import SIDE_TITLES, TITLES
from isotrain.results.series import (
    Rows,
    Series,
    isotropy_series,
    layers_of,
    n_rows,
    series,
    sites_of,
)
from isotrain.runs.keys import CurveKey

SIZE = (3.5, 2.6)  # inches of one panel: the column of a paper, the width of a phone
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
BRIGHTEST = 0.88  # of the colour map of layers: yellow is too faint on white
LEAST_SHOWN = 1e-3  # least height of an axis relative to its largest value
LONG_TITLE = 44  # characters; longer titles are set smaller
FEW_POINTS = 12  # of a line, up to which each has a marker


def panel() -> tuple[Figure, Axes]:
    """A figure of one panel, and its axes."""
    figure = Figure(figsize=SIZE)
    axis = figure.add_axes((0.17, 0.17, 0.79, 0.70))
    axis.xaxis.set_label_coords(0.5, -0.13)  # fixed positions save a tenth of the time
    return figure, axis


def layer_number(name: str) -> int:
    """The number of a layer."""
    return int(name.removeprefix("layer_"))


def layer_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each layer by its number, from dark (layer 0) to bright (the highest)."""
    numbers = {name: layer_number(name) for name in names}
    top = max(numbers.values(), default=0) or 1
    colours = matplotlib.colormaps["viridis"]
    return {name: to_hex(colours(BRIGHTEST * n / top)) for name, n in numbers.items()}


def legend_of(names: Iterable[str]) -> dict[int, str]:
    """Colours of `layer_colours` by layer number, for the legend of a page."""
    colours = layer_colours(sorted(names))
    return {layer_number(name): colour for name, colour in colours.items()}


def draw_score(axis: Axes, rows: Rows, score: str, level: tuple[str, float] | None = None) -> None:
    """The task score on dev at each evaluation, and on held-out examples if there are any.

    The test value is a diamond at the last step, `level` a model-free baseline with its name.
    """
    name, scale = score.partition("/")[2], 100 if is_share(score) else 1
    kinds = (("val", "dev", "-"), ("holdout", "held out", "--"), ("test", "test", ""))
    for (stage, label, style), colour in zip(kinds, COLOURS, strict=False):
        values = [(step, scale * value) for step, value in series(rows, f"{stage}/{name}")]
        mark = "D" if stage == "test" else "o"
        _line(axis, values, style, color=colour, marker=mark, markersize=4, label=label)
    if level is not None:
        axis.axhline(scale * level[1], color="0.4", linewidth=1, linestyle=":", label=level[0])
    _legend(axis)
    finish(axis, name.replace("_", " ") + ", points" * (scale > 1))


def draw_loss(axis: Axes, rows: Rows) -> None:
    """Training loss, its parts if there are objectives, and dev loss."""
    parts = sorted({k for row in rows for k in row if k.startswith("train/") and k.count("/") == 1})
    parts = [k for k in parts if k not in ("train/loss", "train/task_loss")]
    if parts:
        parts.insert(0, "train/task_loss")
    for key, colour in zip(["train/loss", *parts], COLOURS, strict=False):
        style = ":" if parts and key == "train/loss" else "-"
        name = key.removeprefix("train/").replace("_", " ")
        name = "training" if key == "train/loss" else f"training: {name}"
        _line(axis, series(rows, key), style, color=colour, linewidth=1, label=name)
    _line(axis, series(rows, "val/loss"), "--", color="0.3", marker="o", markersize=3, label="dev")
    _legend(axis)
    finish(axis, "loss")


def draw_layers(axis: Axes, rows: Rows, metric: str, view: str) -> None:
    """A metric at one view of every layer, one line each, with its null band if it has one."""
    curves = isotropy_series(rows, metric)
    names = layers_of(curves, view)
    for name, colour in layer_colours(names).items():
        curve = CurveKey(metric, name, view)
        _band(axis, rows, curve, colour)
        mark = "." if len(curves[curve]) <= FEW_POINTS else ""
        _line(axis, curves[curve], "-", color=colour, marker=mark, label=name)
    shown = [curve for curve in curves if curve.view == view]
    finish(axis, joined(TITLES[view], n_rows(rows, shown)))


def draw_sites(axis: Axes, rows: Rows, metric: str) -> None:
    """A metric of the input (dashed) and output (solid) of each isotropy layer, with null bands."""
    curves = isotropy_series(rows, metric)
    sites = sites_of(curves)
    for site, colour in zip(sites, COLOURS * len(sites), strict=False):
        for view, style in (("before", "--"), ("after", "-")):
            curve = CurveKey(metric, site, view)
            alone = curve._replace(view="before") not in curves
            name = site if alone else f"{site}, {SIDE_TITLES[view]}"
            _band(axis, rows, curve, colour, style=style)
            _line(axis, curves.get(curve, []), style, color=colour, marker=".", label=name)
    _legend(axis)
    shown = [curve for curve in curves if curve.where in sites]
    is_layer = any(curve.view == "before" for curve in shown)
    title = "isotropy layer" if is_layer else "what the head reads"
    finish(axis, joined(title, n_rows(rows, shown)))


def finish(axis: Axes, title: str, xlabel: str = "optimizer step") -> None:
    """Set title, grid and axes uniformly; a note if nothing was drawn."""
    size = 9 if len(title) <= LONG_TITLE else 8
    # a fixed y saves a fifth of the time
    axis.set_title(title, fontsize=size, y=1.02, parse_math=False)
    axis.set_xlabel(xlabel, fontsize=8)
    if axis.get_ylabel():
        axis.yaxis.label.set_fontsize(8)
    else:
        axis.yaxis.set_label_coords(0, 0.5)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    if not (axis.lines or axis.collections or axis.images):
        axis.text(0.5, 0.5, "nothing logged", ha="center", transform=axis.transAxes, color="0.4")
        axis.set(xticks=[], yticks=[])
    elif not axis.images:
        axis.grid(alpha=0.25)
        if axis.get_xscale() == "linear":
            low, high = axis.dataLim.intervalx
            if low == high:  # one evaluation; steps are not negative
                axis.set_xlim(max(low - 1, -0.05), high + 1)
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axis.yaxis.set_major_locator(MaxNLocator(5))
        if axis.get_yscale() == "linear":
            low, high = axis.dataLim.intervaly
            least = LEAST_SHOWN * max(abs(low), abs(high))
            if 0 < high - low < least:  # rounding noise only, and ticks would need an offset
                axis.set_ylim((low + high - least) / 2, (low + high + least) / 2)


def joined(*parts: str) -> str:
    """Join the non-empty parts with a dot."""
    return " · ".join(filter(None, parts))


def _line(axis: Axes, values: Series, style: str, **how: Any) -> None:
    if any(math.isfinite(value) for _, value in values):
        alone = "." if len(values) == 1 else ""
        how = {"linewidth": 1.4, "linestyle": style or "none", "marker": alone, **how}
        axis.plot([step for step, _ in values], [value for _, value in values], **how)


def _band(axis: Axes, rows: Rows, curve: CurveKey, colour: str, style: str = "") -> None:
    """Null band of a metric, if logged; with a border if a style is given."""
    low, high = (
        dict(series(rows, curve._replace(metric=f"{curve.metric}_null_{end}").text))
        for end in ("low", "high")
    )
    steps = sorted(low.keys() & high.keys())
    if steps:
        lows, highs = ([end[step] for step in steps] for end in (low, high))
        how: dict[str, Any] = {"linewidth": 0.6 * bool(style), "linestyle": style or "-"}
        axis.fill_between(steps, lows, highs, color=colour, alpha=0.15, **how)


def _legend(axis: Axes) -> None:
    if axis.lines:
        axis.legend(fontsize=7, frameon=False, handlelength=3)  # shows dashes next to a marker
        for text in axis.get_legend().get_texts():  # type: ignore[union-attr]
            text.set_parse_math(False)
