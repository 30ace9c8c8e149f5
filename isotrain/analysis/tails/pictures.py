"""What an analysis of tails found, as pictures. L layers, D dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from isotrain.analysis.layer_figures import Line, layer_figure, side_by_side
from isotrain.analysis.tails.treatments import TREATMENTS
from isotrain.analysis.types import Outcome, Picture, Record

MOST_NAMED = 8  # outliers that a figure can name
MOST_LINES = 4  # outliers whose norms a reader can follow
MEASURES = {  # kind of record, column, its error: title
    ("treated", "anisotropy", "anisotropy_error"): "anisotropy of tokens",
    (
        "treated",
        "self_similarity_adjusted",
        "self_similarity_adjusted_error",
    ): "self-similarity of words, less anisotropy",
    ("wic", "dev", "dev_error"): "WiC, accuracy on dev at the threshold of train",
}


def tail_pictures(outcome: Outcome) -> Iterator[Picture]:
    """Mean vectors and gains of each weights; each measure over layers, a line a treatment."""
    records = outcome.records
    for weights in dict.fromkeys(str(r["weights"]) for r in records):
        own = [r for r in records if r["weights"] == weights]
        dims = [int(r["dimension"] or 0) for r in own if r["kind"] == "outlier"]
        name = weights.replace(" ", "_")
        if f"{weights}/scores" in outcome.arrays:
            yield Picture(
                f"mean_vectors_{name}",
                f"Mean vectors, {weights}",
                _mean_vectors(outcome.arrays[f"{weights}/scores"], dims[:MOST_NAMED]),
                "The mean vector of each layer, entry by entry, in standard deviations from the "
                "mean of its entries; outlier dimensions are named"
                f"{_some(MOST_NAMED, len(dims))}.",
            )
        norms = [r for r in own if r["kind"] == "norm"]
        if norms:
            n = len({r["dimension"] for r in norms})
            title = (
                f"norms at outlier dimensions{_some(MOST_LINES, n)}, z-score against the other "
                "dimensions"
            )
            figure = side_by_side(
                {"gain": _norms(norms, "gain"), "bias": _norms(norms, "bias")}, title
            )
            yield Picture(
                f"norms_{name}",
                f"Norms at outlier dimensions{_some(MOST_LINES, n)}, {weights}",
                figure,
                f"Of {title}: the norms of block l stand between l − 1 and l, in their order.",
            )
    for (kind, column, error), title in MEASURES.items():
        found = [r for r in records if r["kind"] == kind and r.get(column) is not None]
        if found:
            figure = layer_figure(_lines(found, column, error), title)
            yield Picture(f"{kind}_{column}", _capital(title), figure, f"By layer: {title}.")
    if sts := _means_over_sets([r for r in records if r["kind"] == "sts"]):
        n = len({r["set"] for r in records if r["kind"] == "sts"})
        title = f"STS: Spearman × 100, mean over {n} set{'s' if n > 1 else ''}"
        figure = layer_figure(_lines(sts, "spearman", None), title)
        yield Picture("sts", title, figure, f"By layer: {title}.")


def _lines(records: Sequence[Record], column: str, error: str | None) -> list[Line]:
    """A line for each treatment, and of several weights one for each."""
    names = list(dict.fromkeys(str(r["weights"]) for r in records))
    return [
        Line.of(
            treatment if len(names) == 1 else f"{weights} {treatment}",
            [r for r in records if r["treatment"] == treatment and r["weights"] == weights],
            column,
            error,
        )._replace(colour=number)
        for number, treatment in enumerate(TREATMENTS)
        for weights in names
    ]


def _norms(norms: Sequence[Record], part: str) -> list[Line]:
    """The gain or bias of each norm, in the order of their places, a line an outlier."""
    lines = []
    for i in list(dict.fromkeys(r["dimension"] for r in norms))[:MOST_LINES]:
        own = [r for r in norms if r["dimension"] == i and r.get(f"{part}_score") is not None]
        places, scores = (
            [float(r[key]) for r in own]  # type: ignore[arg-type]
            for key in ("place", f"{part}_score")
        )
        lines.append(Line(f"dimension {i}", places, scores))
    return lines


def _means_over_sets(sts: Sequence[Record]) -> list[Record]:
    found: dict[tuple[object, ...], list[Record]] = {}
    for r in sts:
        found.setdefault((r["weights"], r["treatment"], r["layer"]), []).append(r)
    return [
        {**own[0], "spearman": fmean(float(r["spearman"]) for r in own)}  # type: ignore[arg-type]
        for own in found.values()
        if all(r["spearman"] is not None for r in own)
    ]


def _mean_vectors(score_LD: np.ndarray, dims: Sequence[int]) -> Figure:
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    axis = figure.subplots()
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(score_LD)))
    for layer, (score_D, colour) in enumerate(zip(score_LD, colours, strict=True)):
        axis.plot(score_D, color=colour, linewidth=0.7, label=f"layer {layer}")
    for i in dims:
        farthest = score_LD[np.abs(score_LD[:, i]).argmax(), i]
        axis.annotate(
            str(i),
            (i, farthest),
            xytext=(0, 4 if farthest > 0 else -4),
            textcoords="offset points",
            ha="center",
            va="bottom" if farthest > 0 else "top",
            fontsize=8,
        )
    axis.margins(x=0.01, y=0.1)
    axis.set_xlabel("dimension", fontsize=8)
    axis.set_ylabel("entry of the mean vector, in sd", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, frameon=False, ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _some(most: int, n: int) -> str:
    """How many of n are shown, where that is not all.

    >>> _some(4, 7), _some(4, 3)
    (' (4 of 7)', '')
    """
    return f" ({most} of {n})" if n > most else ""


def _capital(title: str) -> str:
    return title[0].upper() + title[1:]
