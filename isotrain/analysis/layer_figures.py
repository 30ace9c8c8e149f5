"""Measures over layers as figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isotrain.analysis.types import Record
from isotrain.pages.panels import COLOURS

MARKERS = ("o", "s", "^")  # one for each round through the colours
MOST = 12  # lines that a reader can tell apart


class Line(NamedTuple):
    """A measure over layers, with its error where there is one."""

    name: str
    layers: Sequence[float]
    values: Sequence[float]
    errors: Sequence[float] | None = None
    colour: int | None = None  # its number among the colours; None = that of its place
    is_mean: bool = False  # of what the other lines are: dotted and black

    @classmethod
    def of(
        cls, name: str, records: Sequence[Record], column: str, error: str | None = None
    ) -> Line:
        """The line of a column of records that have a `layer`; what is missing is not drawn."""
        found = sorted(records, key=lambda record: _number(record["layer"]))
        errors = None if error is None else [_number(record.get(error)) for record in found]
        layers = [_number(record["layer"]) for record in found]
        return cls(name, layers, [_number(record.get(column)) for record in found], errors)


def layer_figure(lines: Sequence[Line], title: str, ylabel: str = "") -> Figure:
    """Lines over layers, 0 the embedding output; bands are ± 1.96 standard errors.

    A line whose name begins with `before` is dashed. Of more than 12 lines the first 12 are
    drawn, and the title says how many there are.
    """
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    _draw(axis, lines, title, ylabel)
    if len(lines) > 1:
        _legend(axis)
    return figure


def side_by_side(panels: Mapping[str, Sequence[Line]], title: str, ylabel: str = "") -> Figure:
    """`layer_figure` for each of some named panels, on one scale, the legend beside the last."""
    figure = Figure(figsize=(1.9 + 4.1 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (name, lines) in zip(axes, panels.items(), strict=True):
        _draw(axis, lines, name if len(panels) > 1 else "", ylabel if axis is axes[0] else "")
    figure.suptitle(title, fontsize=9, parse_math=False)
    if any(len(lines) > 1 for lines in panels.values()):
        _legend(axes[-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw(axis: Axes, lines: Sequence[Line], title: str, ylabel: str) -> None:
    for place, line in enumerate(lines[:MOST]):
        look = _look(line, place if line.colour is None else line.colour)
        axis.plot(line.layers, line.values, markersize=3.5, label=line.name, **look)
        if line.errors is not None:
            low, high = (
                [v + sign * 1.96 * e for v, e in zip(line.values, line.errors, strict=True)]
                for sign in (-1, 1)
            )
            axis.fill_between(line.layers, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if len(lines) > MOST:
        title += f" (the first {MOST} of {len(lines)})"
    axis.set_title(title, fontsize=9, parse_math=False)
    axis.set_xlabel("layer (0 = embedding output)", fontsize=8)
    axis.set_ylabel(ylabel, fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _look(line: Line, number: int) -> dict[str, Any]:
    if line.is_mean:
        return {"color": "black", "marker": "", "linestyle": ":", "linewidth": 2}
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number // len(COLOURS) % len(MARKERS)],
        "linestyle": "--" if line.name.startswith("before") else "-",
    }


def _legend(axis: Axes, **place: Any) -> None:
    for text in axis.legend(fontsize=7, frameon=False, **place).get_texts():
        text.set_parse_math(False)


def _number(cell: object) -> float:
    return float(cell) if isinstance(cell, int | float) else math.nan
