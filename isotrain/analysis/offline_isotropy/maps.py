"""Maps of token embeddings in two dimensions, before and after transforms.

M rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from isotrain.analysis.offline_isotropy.clouds import OWN_POOLING, Fitted, Sample
from isotrain.analysis.plots import Picture
from isotrain.analysis.principal_map import principal_map
from isotrain.geometry.groups import hashed_order

COLUMNS = 3


def row_maps(
    rows: Sample, fits: Mapping[str, Fitted | None], n_points: int, seed: int
) -> dict[str, np.ndarray]:
    """`map_<setting>` `[n, 2]` and `share_<setting>` `[2]` of each transform; `frequency` `[n]`.

    The frequency of a point is how often its token occurs in the sample.
    """
    at_n = hashed_order(len(rows.x_MD), seed)[:n_points]
    _, index_M, count = np.unique(rows.token_M, return_inverse=True, return_counts=True)
    found = {"frequency": count[index_M][at_n.numpy()]}
    for setting, transform in fits.items():
        if setting != OWN_POOLING:
            y_MD = rows.x_MD if transform is None else transform(rows.x_MD)
            point_M2, share_2 = principal_map(y_MD, 2)
            found[f"map_{setting}"] = point_M2[at_n].float().numpy()
            found[f"share_{setting}"] = share_2.numpy()
    return found


def map_pictures(outcome: Any) -> Iterator[Picture]:
    """The rows of one set, a panel a transform; one picture for each layer and weights."""
    mapped: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for key, array in outcome.arrays.items():
        weights, layer, name = key.split("/")
        mapped.setdefault((weights, layer), {})[name] = array
    for (weights, layer), own in mapped.items():
        shown = [name.removeprefix("map_") for name in own if name.startswith("map_")]
        yield Picture(
            f"rows_{weights}_{layer}".replace(" ", "_"),
            f"Token embeddings in two dimensions, {layer}, weights {weights}",
            _maps(own, shown),
            f"{len(own['frequency']):,} tokens on the two dominant directions of each cloud, "
            "all to one scale, coloured by how often the token occurs.",
        )


def _maps(own: Mapping[str, np.ndarray], shown: Sequence[str]) -> Figure:
    n_lines = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(7.2, 0.4 + 2.2 * n_lines), layout="constrained")
    colour_n = np.log10(own["frequency"])
    order_n = np.argsort(-own["frequency"], kind="stable")  # rare ones on top
    everything = np.concatenate([own[f"map_{setting}"] for setting in shown])
    low_2, high_2 = everything.min(axis=0), everything.max(axis=0)
    margin = 0.03 * float((high_2 - low_2).max()) or 1.0
    for number, setting in enumerate(shown, start=1):
        axis = figure.add_subplot(n_lines, COLUMNS, number)
        x_n, y_n = own[f"map_{setting}"][order_n].T
        points = axis.scatter(
            x_n, y_n, c=colour_n[order_n], s=3, linewidths=0, cmap="viridis", rasterized=True
        )
        first, second = own[f"share_{setting}"]
        axis.set_title(f"{setting}\n{first:.1%} and {second:.1%} of the variance", fontsize=7)
        limits = [(low - margin, high + margin) for low, high in zip(low_2, high_2, strict=True)]
        axis.set(xlim=limits[0], ylim=limits[1], aspect="equal", xticks=[], yticks=[])
    bar = figure.colorbar(points, ax=figure.axes, shrink=0.6)
    bar.set_label("log10 of the occurrences of the token", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure
