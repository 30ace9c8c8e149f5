"""Maps of layers on their principal directions: islands in two of them, rolls in three.

M points of a map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from isotrain.analysis.plots import Picture
from isotrain.pages.panels import COLOURS

KINDS = {"word": COLOURS[5], "symbol": COLOURS[1]}
POINT = {"s": 4.0, "linewidths": 0, "rasterized": True}  # size in square points
Map = Mapping[str, Any]
"""A layer's record with its arrays: map `[M, 3]`, frequency, symbol and cluster `[M]`."""


def islands(outcome: Any) -> Iterator[Picture]:
    """A row a layer: two directions, coloured by frequency, by symbol or word, and by cluster."""
    for weights, maps, points in _of_weights(outcome):
        figure = Figure(figsize=(8.4, 2.7 * len(maps)), layout="constrained")
        axes = figure.subplots(len(maps), 3, squeeze=False)
        for row, one in zip(axes, maps, strict=True):
            xy, k = one["map"][:, :2], one["k"]
            _frequencies(figure, row[0], xy, one)
            _kinds(row[1], xy, one)
            for cluster in range(k):
                own = one["cluster"] == cluster
                number = (2 * cluster + cluster // 10) % 20  # dark ones first
                row[2].scatter(*xy[own].T, color=matplotlib.colormaps["tab20"](number), **POINT)
            silhouette = one["silhouette"]
            chosen = "too few rows" if silhouette is None else f"silhouette {silhouette:.2f}"
            row[0].set_ylabel(f"layer {one['layer']}", fontsize=9)
            share = f"frequency; {one['map_variance']:.0%} of the variance in 3 directions"
            for axis, title in zip(
                row, (share, "symbols and words", f"k = {k}, {chosen}"), strict=True
            ):
                axis.set_title(title, fontsize=8)
                axis.set(xticks=[], yticks=[])
                axis.spines[["top", "right"]].set_visible(False)
        yield Picture(
            f"islands_{weights}".replace(" ", "_"),
            f"Clusters on two principal directions ({weights})",
            figure,
            f"{points} on the two leading principal directions: by occurrences of the type in the "
            "text, by symbol (no letter or digit) or word, and by cluster.",
        )


def rolls(outcome: Any) -> Iterator[Picture]:
    """A column a layer: three directions, coloured by frequency above, symbol or word below."""
    for weights, maps, points in _of_weights(outcome):
        figure = Figure(figsize=(3.2 * len(maps), 6.2), layout="constrained")
        for column, one in enumerate(maps, start=1):
            above, below = (
                figure.add_subplot(2, len(maps), row * len(maps) + column, projection="3d")
                for row in (0, 1)
            )
            _frequencies(figure, above, one["map"], one)
            above.set_title(
                f"layer {one['layer']}: {one['map_variance']:.0%} of the variance", fontsize=8
            )
            _kinds(below, one["map"], one)
            for axis in (above, below):
                axis.tick_params(labelsize=5, pad=-2)
                axis.set_box_aspect(None, zoom=0.92)
        yield Picture(
            f"rolls_{weights}".replace(" ", "_"),
            f"Manifolds on three principal directions ({weights})",
            figure,
            f"{points} on the three leading principal directions: by occurrences of the type "
            "above, by symbol or word below. Rolls and bands show that frequency orders rows.",
        )


def _of_weights(outcome: Any) -> Iterator[tuple[str, list[Map], str]]:
    """The maps of each weights, in the order of layers, and what their points are."""
    records = [r for r in outcome.records if r["kind"] == "layer" and "map_variance" in r]
    for weights in dict.fromkeys(r["weights"] for r in records):
        maps: list[Map] = []
        for record in (r for r in records if r["weights"] == weights):
            name = f"{weights}/layer-{record['layer']}"
            arrays = {
                key: outcome.arrays[f"{name}/{key}"]
                for key in ("map", "frequency", "symbol", "cluster")
            }
            maps.append({**record, **arrays})
        layers = ", ".join(str(one["layer"]) for one in maps)
        yield str(weights), maps, f"{len(maps[0]['map']):,} rows of layers {layers}"


def _frequencies(figure: Figure, axis: Any, point_M: np.ndarray, one: Map) -> None:
    order = np.argsort(one["frequency"], kind="stable")[::-1]  # rare types on top
    colours = {"c": one["frequency"][order], "norm": "log", "cmap": "viridis"}
    bar = figure.colorbar(
        axis.scatter(*point_M[order].T, **colours, **POINT), ax=axis, shrink=0.6, pad=0.02
    )
    bar.ax.tick_params(labelsize=6)
    bar.set_label("occurrences of the type", fontsize=6)


def _kinds(axis: Any, point_M: np.ndarray, one: Map) -> None:
    for name, colour in KINDS.items():
        own = one["symbol"] == (name == "symbol")
        axis.scatter(*point_M[own].T, color=colour, **POINT)
    handles = [
        Line2D([], [], color=colour, label=name, marker="o", linestyle="", markersize=4)
        for name, colour in KINDS.items()
    ]
    axis.legend(handles=handles, fontsize=6, frameon=False)
