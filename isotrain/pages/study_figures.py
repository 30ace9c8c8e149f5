"""Figures of a study that compare methods. No pyplot, no global state."""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from isotrain.pages.panels import COLOURS, SIZE, finish, joined, layer_number, panel
from isotrain.pages.study_answer import verdict
from isotrain.results.curves import Curve
from isotrain.results.frame import Row
from isotrain.results.numbers import is_share, minus, size_range
from isotrain.results.readings import SIDE_TITLES, label
from isotrain.results.runs import Run
from isotrain.results.statistics import Summary
from isotrain.results.words import cloud_name, difference_text, examples_text, score_name
from isotrain.runs.keys import SIDES, CurveKey

MARKERS = {  # matplotlib markers, as a path around the origin for the legend of a page
    "o": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "s": "M-3 -3h6v6h-6z",
    "^": "M0 -3.6L3.6 3H-3.6z",
    "D": "M0 -4L4 0L0 4L-4 0z",
    "v": "M0 3.6L3.6 -3H-3.6z",
    "P": "M-1.2 -3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "X": "M-3.6 -2L-2 -3.6L0 -1.6L2 -3.6L3.6 -2L1.6 0L3.6 2L2 3.6L0 1.6L-2 3.6L-3.6 2L-1.6 0z",
}
DASHES = {"-": "", "--": "5 2", ":": "1.5 1.5", "-.": "5 1.5 1.5 1.5"}


class Look(NamedTuple):
    """Plot style of one method."""

    name: str
    number: int  # of the method, as in `method-3`
    colour: str
    marker: str
    line: str

    @property
    def gid(self) -> str:
        """The id of its lines in a figure, by which a page highlights them."""
        return f"method-{self.number}"

    @property
    def path(self) -> str:
        """Its marker for a legend."""
        return MARKERS[self.marker]

    @property
    def dash(self) -> str:
        """Its line for a legend."""
        return DASHES[self.line]


def method_looks(names: Sequence[str], baseline: str) -> dict[str, Look]:
    """Plot style of each method: the baseline grey and dashed, others coloured with markers.

    Up to 36 methods have distinct pairs of colour and marker.

    >>> looks = method_looks(["none", "project"], "none")
    >>> looks["none"].colour, looks["none"].line, looks["project"].marker
    ('#444444', '--', 's')
    """
    colours, markers, lines = COLOURS[:-1], list(MARKERS)[1:], list(DASHES)
    looks = {baseline: Look(baseline, 0, COLOURS[-1], "o", "--")}
    for k, name in enumerate(name for name in names if name != baseline):
        lap, place = divmod(k, len(colours))
        marker = markers[(place + lap) % len(markers)]
        looks[name] = Look(name, k + 1, colours[place], marker, lines[lap % len(lines)])
    return looks


Looks = Mapping[str, Look]
ROW = 0.42  # inches of a method in a difference plot
EDGES = (0.30, 0.48)  # inches above and below its rows
SMALLEST = 1e-3  # value without an exponent on an axis
LINE = 0.07  # of a panel's height, for its value label
MOST_LETTERS = 27  # of a method name in a figure


def differences(
    rows: Sequence[Row],
    runs: Sequence[Run],
    looks: Looks,
    published: Mapping[str, float] = MappingProxyType({}),
) -> Figure:
    """Difference of each method to the baseline on one score, with 95 % CI over seeds.

    A filled marker is significant at 5 % (Holm-corrected), without collapsed runs. Faint dots
    are single seeds, the thin line below is the CI over seeds and examples; a cross is the
    `published` difference of a method, the grey band the equivalence margin.
    """
    height = EDGES[0] + ROW * len(rows) + EDGES[1]
    figure = Figure(figsize=(SIZE[0], height))
    sides = (0.06, 0.88)  # room for half a tick label next to the axis
    axis = figure.add_axes((sides[0], EDGES[1] / height, sides[1], ROW * len(rows) / height))
    score, baseline = rows[0].score, next(iter(looks))
    scale = 100.0 if is_share(score) else 1.0
    margin = scale * max((row.margin or 0.0 for row in rows), default=0.0)
    if margin:
        axis.axvspan(-margin, margin, color="0.9", linewidth=0)
    axis.axvline(0, color="0.3", linewidth=1)
    reached = [0.0, -margin, margin]
    for y, row in enumerate(rows):
        dots = [scale * value for value in _paired(runs, score, row.method, baseline)]
        reached += [*dots, *_draw_difference(axis, row, y, dots, looks[row.method], scale)]
        if row.method in published:
            reached.append(scale * published[row.method])
            axis.plot(reached[-1:], [y + 0.6], "x", color="0.3", markersize=6)
    unit = ", in points" if is_share(score) else ""
    name = joined(rows[0].task, score_name(score), examples_text(rows[0].examples))
    finish(axis, name, f"difference to {_short(baseline)}, paired by seed{unit}")
    low, high = min(reached), max(reached)
    pad = 0.06 * (high - low) or 0.01
    axis.set(xlim=(low - pad, high + pad), ylim=(len(rows), 0), yticks=[])
    axis.title.set_y(1 + 0.05 / (ROW * len(rows)))
    axis.spines["left"].set_visible(False)
    return figure


def _draw_difference(
    axis: Axes, row: Row, y: int, dots: Sequence[float], look: Look, scale: float
) -> list[float]:
    """Draw one row of the plot; its extreme values."""
    assert row.difference is not None
    words: dict[str, Any] = {"fontsize": 7, "va": "center", "gid": look.gid, "parse_math": False}
    at = axis.get_yaxis_transform()
    axis.text(0, y + 0.25, _short(look.name), transform=at, fontweight="bold", **words)
    text, behind = difference_text(row), {"color": "white", "alpha": 0.8, "pad": 0.5}
    axis.text(1, y + 0.25, text, transform=at, ha="right", bbox=behind, **words)
    line: dict[str, Any] = {"color": look.colour, "gid": look.gid}
    axis.plot(dots, [y + 0.6] * len(dots), ".", alpha=0.35, markersize=5, **line)
    reached = [scale * row.difference]
    for ends, height, width in (
        ((row.difference_low, row.difference_high), 0.6, 1.8),
        ((row.both_low, row.both_high), 0.8, 0.8),
    ):
        if known := [scale * end for end in ends if end is not None]:
            axis.plot(known, [y + height] * 2, linewidth=width, **line)
            reached += known
    fill = look.colour if verdict(row) in ("higher", "lower") else "white"
    axis.plot(reached[:1], [y + 0.6], look.marker, markersize=6, markerfacecolor=fill, **line)
    return [value for value in reached if math.isfinite(value)]


def _paired(runs: Sequence[Run], score: str, method: str, baseline: str) -> list[float]:
    """Method minus baseline for every shared seed."""
    base = {run.seed: run.scores.get(score, math.nan) for run in runs if run.method == baseline}
    own = {run.seed: run.scores.get(score, math.nan) for run in runs if run.method == method}
    found = (own[seed] - base[seed] for seed in own if seed in base)
    return [value for value in found if math.isfinite(value)]


def against_isotropy(
    runs: Sequence[Run], score: str, curve_key: CurveKey, looks: Looks, title: str
) -> Figure:
    """A score against the isotropy of a cloud: small points are runs, large ones method means.

    Runs with collapsed predictions are hollow and included in the means.
    """
    figure, axis = panel()
    scale = 100.0 if is_share(score) else 1.0
    for look in looks.values():
        known = [
            (run.scores[curve_key.text], scale * run.scores[score], bool(run.degenerate))
            for run in runs
            if run.method == look.name
            and math.isfinite(run.scores.get(curve_key.text, math.nan))
            and math.isfinite(run.scores.get(score, math.nan))
        ]
        how: dict[str, Any] = {"color": look.colour, "gid": look.gid}
        for hollow in (False, True):
            if points := [(x, y) for x, y, collapsed in known if collapsed == hollow]:
                fill: dict[str, Any] = {"markerfacecolor": "none"} if hollow else {"alpha": 0.45}
                xs, ys = zip(*points, strict=True)
                axis.plot(xs, ys, look.marker, markersize=4, **fill, **how)
        if known:
            x, y = (sum(p[k] for p in known) / len(known) for k in (0, 1))
            edge: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.9}
            axis.plot([x], [y], look.marker, markersize=8, zorder=3, **edge, **how)
    finish(axis, title, label(curve_key.metric))
    _name_values(axis, f"{score_name(score)}{', points' if is_share(score) else ''}")
    return figure


def by_layer(curves: Sequence[Curve], view: str, looks: Looks, titles: Mapping[str, str]) -> Figure:
    """Final value of a metric over layers, one line per method with the 95 % CI of its mean."""
    figure, axis = panel()
    own = [curve for curve in curves if curve.key.view == view and curve.end]
    for look in looks.values():
        ends = {layer_number(c.key.where): c.end for c in own if c.method == look.name and c.end}
        layers = sorted(ends)
        _line(axis, layers, [ends[layer] for layer in layers], look)
    _finish(axis, own, titles[view], "layer")
    return figure


def around_site(curves: Sequence[Curve], site: str, looks: Looks) -> Figure:
    """Final value of a metric at the layer input and layer output of a site, with 95 % CIs.

    Methods without a layer there show the head's input as output.
    """
    figure, axis = panel()
    own = [curve for curve in curves if curve.key.where == site and curve.end]
    step = 0.5 / max(1, len(looks) - 1)
    for number, look in enumerate(looks.values()):
        ends = {c.key.view: c.end for c in own if c.method == look.name and c.end}
        shift = step * number - 0.25 * (len(looks) > 1)
        xs = [SIDES.index(side) + shift for side in SIDES if side in ends]
        points = [ends[side] for side in SIDES if side in ends]
        how: dict[str, Any] = {"color": look.colour, "gid": look.gid}
        for x, point in zip(xs, points, strict=True):
            if point.low is not None and point.high is not None:
                axis.plot([x, x], [point.low, point.high], linewidth=1.4, **how)
        if points:
            means = [point.mean for point in points]
            axis.plot(xs, means, look.line, marker=look.marker, markersize=4, linewidth=0.6, **how)
    _finish(axis, own, f"site {site}", "with or without an isotropy layer")
    axis.set(xlim=(-0.45, 1.45), xticks=[0, 1])
    axis.set_xticklabels([SIDE_TITLES[side] for side in SIDES])
    return figure


def through_training(curves: Sequence[Curve], curve_key: CurveKey, looks: Looks) -> Figure:
    """A metric of one cloud over optimizer steps, one line per method with its 95 % CI."""
    figure, axis = panel()
    own = [curve for curve in curves if curve.key == curve_key]
    for look in looks.values():
        for curve in own:
            if curve.method == look.name:
                _line(axis, list(curve.points), list(curve.points.values()), look, small=True)
    finish(axis, joined(cloud_name(curve_key), rows_of(own)))
    return figure


def _finish(axis: Axes, own: Sequence[Curve], where: str, xlabel: str) -> None:
    """Label a figure with task, cloud and metric, as needed in a separate file."""
    finish(axis, joined(own[0].task if own else "", where, rows_of(own)), xlabel)
    if own:
        _name_values(axis, label(own[0].key.metric))


def _name_values(axis: Axes, name: str) -> None:
    """Label the values above their axis, where long tick labels cannot overlap it."""
    left, bottom, width, height = axis.get_position().bounds
    axis.set_position((left + 0.02, bottom, width - 0.02, height - LINE))
    axis.title.set_y(1.02 + LINE / (height - LINE))
    how: dict[str, Any] = {"rotation": 0, "ha": "left", "va": "bottom", "fontsize": 7.5}
    axis.set_ylabel(name, parse_math=False, **how)
    axis.yaxis.set_label_coords(-0.18, 1.02)
    axis.xaxis.set_label_coords(0.5, -0.13 * height / (height - LINE))
    axis.ticklabel_format(axis="y", style="plain", useOffset=False)
    if np.abs(axis.dataLim.intervaly).max() < SMALLEST:
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: minus(f"{value:.5g}")))


def _line(
    axis: Axes,
    xs: Sequence[float],
    points: Sequence[Summary],
    look: Look,
    small: bool = False,
) -> None:
    """Draw means with their band; gaps where a mean is not finite."""
    if not any(math.isfinite(point.mean) for point in points):
        return
    ends = [
        (x, point.low, point.high)
        for x, point in zip(xs, points, strict=True)
        if point.low is not None and point.high is not None
    ]
    how: dict[str, Any] = {"color": look.colour, "gid": look.gid}
    if ends:
        at, lows, highs = zip(*ends, strict=True)
        axis.fill_between(at, lows, highs, alpha=0.1, linewidth=0, **how)
    means = [point.mean for point in points]
    size: dict[str, Any] = {"markersize": 2.5 if small else 4, "linewidth": 1.2}
    axis.plot(xs, means, look.line, marker=look.marker, **size, **how)


def with_names(figure: Figure, looks: Looks) -> Figure:
    """Add the names of the methods below a figure, for use outside a page."""
    width, height = figure.get_size_inches()
    below = 0.08 + 0.16 * math.ceil(len(looks) / 2)
    figure.set_size_inches(width, height + below)
    for axis in figure.axes:
        left, bottom, wide, high = axis.get_position().bounds
        whole = height + below
        axis.set_position((left, (bottom * height + below) / whole, wide, high * height / whole))
    styles: list[Any] = [look.line for look in looks.values()]
    lines = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=style, markersize=4)
        for look, style in zip(looks.values(), styles, strict=True)
    ]
    names = [_short(name) for name in looks]
    legend = figure.legend(lines, names, loc="lower center", ncols=2, fontsize=6.5, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def rows_of(curves: Iterable[Curve]) -> str:
    """Number of embeddings behind some curves, as text; empty if unknown."""
    return size_range({curve.n_rows for curve in curves} - {0})


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
