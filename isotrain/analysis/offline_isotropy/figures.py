"""Correlation and isotropy of all settings over layers, as figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from isotrain.analysis.offline_isotropy.tables import distinct, number, of_kind, with_means
from isotrain.analysis.offline_isotropy.transforms import RECIPES
from isotrain.analysis.types import Picture, Record
from isotrain.pages.panels import COLOURS

LOOKS = {  # the same in every figure; a palette has seven colours
    name: (mark, colour)
    for name, mark, colour in zip(RECIPES, "Pos^DvX<", (*COLOURS, "#888888"), strict=True)
}
COLUMNS = 3


def score_pictures(records: Sequence[Record]) -> Iterator[Picture]:
    """Spearman of each set over layers, and ln I(W) beside what chance gives it."""
    similar = [r for r in of_kind(records, "similarity") if r["aggregate"] == "all"]
    if similar:
        yield Picture(
            "spearman",
            "Spearman correlation by layer",
            _over_layers(with_means(similar), "spearman", "Spearman × 100"),
            "Spearman correlation of cosine and gold over all pairs, a panel a set, a line a "
            "setting, layer 0 the embedding output; bars are ± 1.96 standard errors over pairs.",
        )
    clouds = of_kind(records, "cloud")
    if clouds:
        yield Picture(
            "partition",
            "Partition isotropy of the token embeddings by layer",
            _over_layers(clouds, "ln_partition", "ln I(W)"),
            "ln I(W) of the token embeddings (0 = isotropic), a panel a set, a line a setting; "
            "thin dotted lines are what Gaussian rows of the same number and norm have.",
        )


def _over_layers(own: Sequence[Record], column: str, ylabel: str) -> Figure:
    """A panel a set, a line a setting; lines of the weights before training are dashed."""
    sets, settings = distinct(own, "set"), distinct(own, "setting")
    weights = distinct(own, "weights")
    n_lines = -(-len(sets) // COLUMNS)
    n_columns = min(COLUMNS, len(sets))
    figure = Figure(figsize=(7.2, 0.8 + 2.3 * n_lines), layout="constrained")
    panels = figure.subplots(n_lines, n_columns, sharey=True, squeeze=False).ravel()
    for axis, name in zip(panels, sets, strict=False):
        for weight, setting in product(weights, settings):
            where = (name, weight, setting)
            mine = [r for r in own if (r["set"], r["weights"], r["setting"]) == where]
            _draw(axis, sorted(mine, key=lambda r: number(r, "layer")), setting, column)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("layer", fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in panels[len(sets) :]:
        axis.set_visible(False)
    for axis in panels[::n_columns]:
        axis.set_ylabel(ylabel, fontsize=8)
    handles, names = panels[0].get_legend_handles_labels()
    shown = dict(zip(names, handles, strict=True))
    figure.legend(
        shown.values(), shown, loc="outside lower center", ncols=4, fontsize=7, frameon=False
    )
    return figure


def _draw(axis: Axes, own: Sequence[Record], setting: str, column: str) -> None:
    layers = [number(r, "layer") for r in own]
    is_before = any(r["weights"] == "before" for r in own)
    mark, colour = LOOKS[setting]
    axis.errorbar(
        layers,
        [number(r, column) for r in own],
        yerr=[1.96 * number(r, f"{column}_error") for r in own],
        fmt=mark,
        linestyle="--" if is_before else "-",
        color=colour,
        markersize=3,
        linewidth=1,
        elinewidth=0.6,
        label=f"{setting}, before" if is_before else setting,
    )
    if column == "ln_partition":
        chance = [number(r, "chance") for r in own]
        axis.plot(layers, chance, color=colour, linestyle=":", linewidth=0.8)
