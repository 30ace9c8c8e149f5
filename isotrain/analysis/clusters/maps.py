"""Maps of layers in two and three dimensions, for the clusters analysis.

M points of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from isotrain.pages.panels import COLOURS

FREQUENCY = "viridis"
WORD, SYMBOL = COLOURS[5], COLOURS[1]
LEGEND: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 4}
POINT = 4.0  # area of a point, in square points


class Map(NamedTuple):
    """The points of a layer on its three leading principal directions, and what they are."""

    layer: int
    share: float  # of the variance, in the three directions
    point_M3: np.ndarray
    frequency_M: np.ndarray  # occurrences of the type in the text
    symbol_M: np.ndarray  # whether it has no letter and no digit
    cluster_M: np.ndarray
    k: int
    silhouette: float | None


def read_maps(arrays: Mapping[str, np.ndarray], records: Sequence[Mapping[str, Any]]) -> list[Map]:
    """The maps of one encoder, in the order of layers; of its records and arrays."""
    found = []
    for record in records:
        name = f"{record['weights']}/layer-{record['layer']}"
        if f"{name}/map" in arrays:
            found.append(
                Map(
                    layer=int(record["layer"]),
                    share=float(record["map_variance"]),
                    point_M3=arrays[f"{name}/map"],
                    frequency_M=arrays[f"{name}/frequency"],
                    symbol_M=arrays[f"{name}/symbol"],
                    cluster_M=arrays[f"{name}/cluster"],
                    k=int(record["k"]),
                    silhouette=record["silhouette"],
                )
            )
    return sorted(found, key=lambda one: one.layer)


def islands(maps: Sequence[Map]) -> Figure:
    """A row a layer: two directions, coloured by frequency, by symbol or word, and by cluster."""
    figure = Figure(figsize=(8.4, 2.7 * max(1, len(maps))), layout="constrained")
    axes = figure.subplots(max(1, len(maps)), 3, squeeze=False)
    for row, one in zip(axes, maps, strict=True):
        xy = one.point_M3[:, :2]
        _frequencies(figure, row[0], xy, one)
        _kinds(row[1], xy, one)
        for cluster in range(one.k):
            own = one.cluster_M == cluster
            colour = matplotlib.colormaps["tab20"]((2 * cluster + cluster // 10) % 20)  # dark first
            row[2].scatter(*xy[own].T, s=POINT, color=colour, linewidths=0, rasterized=True)
        row[0].set_ylabel(f"layer {one.layer}", fontsize=9)
        chosen = "too few rows" if one.silhouette is None else f"silhouette {one.silhouette:.2f}"
        row[0].set_title(f"frequency; {one.share:.0%} of the variance in 3 directions", fontsize=8)
        row[1].set_title("symbols and words", fontsize=8)
        row[2].set_title(f"k = {one.k}, {chosen}", fontsize=8)
        for axis in row:
            axis.set(xticks=[], yticks=[])
            axis.spines[["top", "right"]].set_visible(False)
    return figure


def rolls(maps: Sequence[Map]) -> Figure:
    """A column a layer: three directions, coloured by frequency above, symbol or word below."""
    figure = Figure(figsize=(3.2 * max(1, len(maps)), 6.2), layout="constrained")
    for column, one in enumerate(maps, start=1):
        for row in (0, 1):
            axis: Any = figure.add_subplot(2, len(maps), row * len(maps) + column, projection="3d")
            if row == 0:
                _frequencies(figure, axis, one.point_M3, one)
                axis.set_title(f"layer {one.layer}: {one.share:.0%} of the variance", fontsize=8)
            else:
                _kinds(axis, one.point_M3, one)
            axis.tick_params(labelsize=5, pad=-2)
            axis.set_box_aspect(None, zoom=0.92)
    return figure


def _frequencies(figure: Figure, axis: Any, point_M: np.ndarray, one: Map) -> None:
    order = np.argsort(one.frequency_M, kind="stable")[::-1]  # rare types on top
    drawn = axis.scatter(
        *point_M[order].T,
        c=one.frequency_M[order],
        norm="log",
        cmap=FREQUENCY,
        s=POINT,
        linewidths=0,
        rasterized=True,
    )
    bar = figure.colorbar(drawn, ax=axis, shrink=0.6, pad=0.02)
    bar.ax.tick_params(labelsize=6)
    bar.set_label("occurrences of the type", fontsize=6)


def _kinds(axis: Any, point_M: np.ndarray, one: Map) -> None:
    handles = []
    for name, colour, own in (
        ("word", WORD, ~one.symbol_M),
        ("symbol", SYMBOL, one.symbol_M),
    ):
        axis.scatter(*point_M[own].T, s=POINT, color=colour, linewidths=0, rasterized=True)
        handles.append(Line2D([], [], color=colour, label=name, **LEGEND))
    axis.legend(handles=handles, fontsize=6, frameon=False)
