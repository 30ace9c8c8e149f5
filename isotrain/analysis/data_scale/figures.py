"""Pictures of scores over training sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from isotrain.analysis.data_scale.curves import Curve, about, curves, measure
from isotrain.analysis.types import Cell, Picture, Record
from isotrain.pages.panels import COLOURS


def scale_pictures(records: Sequence[Record]) -> Iterator[Picture]:
    """A figure a task: score over training examples, a line for each kind of features."""
    for task, own in curves(records).items():
        facts = about(records, task)
        n_seeds = max(point.n for point in next(iter(own.values())).values())
        title = f"{task}: {measure(task)} by number of training examples"
        yield Picture(
            f"curves_{task}",
            title.capitalize() if task != "conll" else title,
            curve_figure(own, title, measure(task), facts["majority"]),
            f"{measure(task)} on {facts['n_scored']:,} examples of {task} over the number of "
            f"training examples, mean of {n_seeds} seeds; bands are 95 % intervals for other seeds "
            "and other examples.",
        )


def curve_figure(own: Mapping[str, Curve], title: str, ylabel: str, chance: Cell) -> Figure:
    """Means over sizes on a logarithmic axis, with bands; a dotted line at the largest class."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    for (name, curve), colour in zip(own.items(), COLOURS, strict=False):
        at = list(curve)
        axis.plot(at, [p.mean for p in curve.values()], "o-", ms=3.5, color=colour, label=name)
        low, _, high = zip(*(point.ends for point in curve.values()), strict=True)
        axis.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
    if isinstance(chance, float):
        axis.axhline(chance, color="0.4", linestyle=":", linewidth=1, label="largest class")
    axis.set_xscale("log", base=2)
    axis.set_xticks(at, [f"{size:,}" for size in at], fontsize=7)
    axis.minorticks_off()
    axis.set_xlabel("training examples", fontsize=8)
    axis.set_ylabel(ylabel, fontsize=8)
    axis.set_title(title, fontsize=9, parse_math=False)
    axis.tick_params(labelsize=7.5)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7.5, frameon=False)
    return figure
