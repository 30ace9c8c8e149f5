"""Correlation and isotropy of all settings as figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from isotrain.analysis.offline_isotropy.tables import distinct, of_kind, sets_of
from isotrain.analysis.offline_isotropy.transforms import RECIPES
from isotrain.analysis.types import Picture, Record
from isotrain.pages.panels import COLOURS

LOOKS = {  # the same in every figure; a palette has seven colours
    name: (mark, colour)
    for name, mark, colour in zip(RECIPES, "Pos^DvX<", (*COLOURS, "#888888"), strict=True)
}
WIDTH = 0.7  # of the places of a set that its settings stand at


def score_pictures(records: Sequence[Record]) -> Iterator[Picture]:
    """Spearman with its error by set, and ln I(W) beside what chance gives it."""
    similar = [r for r in of_kind(records, "similarity") if r["aggregate"] == "all"]
    if similar:
        yield Picture(
            "spearman",
            "Spearman correlation by set and setting",
            _by_set(similar, "spearman", "Spearman × 100, all pairs", error="spearman_error"),
            "Spearman correlation of cosine and gold over all pairs of each set, a mark a setting; "
            "bars are ± 1.96 standard errors over pairs.",
        )
    clouds = of_kind(records, "cloud")
    if clouds:
        yield Picture(
            "partition",
            "Partition isotropy of the token rows by set and setting",
            _by_set(clouds, "ln_partition", "ln I(W), 0 = isotropic", chance="chance"),
            "ln I(W) of the token rows of each set, a mark a setting; a short line is what "
            "Gaussian rows of the same number and norm have.",
        )


def _by_set(
    own: Sequence[Record],
    column: str,
    ylabel: str,
    error: str | None = None,
    chance: str | None = None,
) -> Figure:
    """A panel for each of the weights: sets along, a mark a setting."""
    weights, sets, settings = distinct(own, "weights"), sets_of(own), distinct(own, "setting")
    figure = Figure(figsize=(7.2, 0.6 + 2.9 * len(weights)), layout="constrained")
    panels = figure.subplots(len(weights), 1, sharey=True, squeeze=False)[:, 0]
    for axis, weight in zip(panels, weights, strict=True):
        for s, setting in enumerate(settings):
            shift = WIDTH * ((s + 0.5) / len(settings) - 0.5)
            mine = {r["set"]: r for r in own if (r["weights"], r["setting"]) == (weight, setting)}
            at = [i + shift for i, name in enumerate(sets) if name in mine]
            found = [mine[name] for name in sets if name in mine]
            axis.errorbar(
                at,
                [_number(r, column) for r in found],
                yerr=None if error is None else [1.96 * _number(r, error) for r in found],
                fmt=LOOKS[setting][0],
                color=LOOKS[setting][1],
                markersize=4,
                linewidth=1,
                label=setting,
            )
            if chance is not None:
                half = 0.5 * WIDTH / len(settings)
                levels = [_number(r, chance) for r in found]
                axis.hlines(levels, [x - half for x in at], [x + half for x in at], color="0.4")
        axis.set_xticks(range(len(sets)), sets, fontsize=8)
        axis.set_ylabel(ylabel, fontsize=8)
        axis.tick_params(labelsize=8)
        axis.grid(axis="y", alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if len(weights) > 1:
            axis.set_title(weight, fontsize=9)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    return figure


def _number(record: Record, column: str) -> float:
    value = record.get(column)
    return float(value) if isinstance(value, int | float) else math.nan
