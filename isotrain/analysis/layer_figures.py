"""Measures over layers as figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isotrain.analysis.types import Record
from isotrain.pages.panels import COLOURS

LOOKS = {"before": "--"}
MOST = 12  # lines that a reader can tell apart


class Line(NamedTuple):
    """A measure over layers, with its error where there is one."""

    name: str
    layers: Sequence[float]
    values: Sequence[float]
    errors: Sequence[float] | None = None

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
    """Lines over layers, 0 the embedding output; bands are ± 1.96 standard errors."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    for line, colour in zip(lines[:MOST], COLOURS * MOST, strict=False):
        style = LOOKS.get(line.name, "-")
        axis.plot(line.layers, line.values, style, marker=".", color=colour, label=line.name)
        if line.errors is not None:
            low, high = (
                [v + sign * 1.96 * e for v, e in zip(line.values, line.errors, strict=True)]
                for sign in (-1, 1)
            )
            axis.fill_between(line.layers, low, high, color=colour, alpha=0.2)
    axis.set_title(title, fontsize=9, parse_math=False)
    axis.set_xlabel("layer (0 = embedding output)", fontsize=8)
    axis.set_ylabel(ylabel, fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        axis.legend(fontsize=7, frameon=False)
        for text in axis.get_legend().get_texts():  # type: ignore[union-attr]
            text.set_parse_math(False)
    return figure


def _number(cell: object) -> float:
    return float(cell) if isinstance(cell, int | float) else math.nan
