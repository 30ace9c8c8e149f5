"""Figures of snapshots: spectra, and two-dimensional maps of M points."""

import fnmatch
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from isotrain.pages.maps import Snapshots, aligned, class_names
from isotrain.pages.page import Figures, Section, piece
from isotrain.pages.panels import (
    COLOURS,
    finish,
    joined,
    layer_colours,
    layer_number,
    legend_of,
    panel,
)
from isotrain.results.numbers import superscript
from isotrain.results.readings import SIDE_TITLES, TITLES
from isotrain.results.series import End
from isotrain.runs.keys import VIEWS

N_RANKS = 60  # of a spectrum that are drawn, evenly on the logarithmic axis
LEAST = 1e-6  # share of the largest below which nothing is drawn
FEW_DECADES = 100  # ratio of an axis, below which each decade has three ticks
MARKS = "os^Dv<>"


def spectra(
    snapshots: Snapshots, clouds: str, end: End, titles: Mapping[str, str] = TITLES
) -> Figure:
    """Share of the variance against rank, both logarithmic, at the first snapshot and at `end`.

    `clouds` is `*/<view>`, with one line per layer, grey in the background for the first snapshot;
    or `<site>/*`: before and after, dashed for the first.
    """
    figure, axis = panel()
    ends = [s for s in dict.fromkeys([min(snapshots, default=0), end.step]) if s in snapshots]
    names = sorted({name for step in ends for name in clouds_of(snapshots[step], clouds)})
    names.sort(key=lambda name: name.endswith("/after"))  # before comes first
    of_layers = clouds.startswith("*/")
    wheres = [name.split("/")[0] for name in names]
    colours = layer_colours(wheres).values() if of_layers else COLOURS
    for name, where, colour in zip(names, wheres, colours, strict=False):
        view = name.split("/")[1]
        for step in ends:
            eigenvalues = snapshots[step].get(f"spectrum/{name}", np.zeros(0))
            if not eigenvalues.sum() > 0:
                continue
            ranks = np.unique(np.geomspace(1, len(eigenvalues), N_RANKS).round().astype(int))
            shares = eigenvalues[ranks - 1] / eigenvalues.sum()
            is_end = step == end.step
            axis.plot(
                ranks,
                np.where(shares > LEAST * shares[0], shares, np.nan),
                "-" if is_end or of_layers else "--",
                color=colour if is_end or not of_layers else "0.75",
                zorder=2 if is_end else 1.5,
                linewidth=1.2,
                gid=f"layer-{layer_number(where)}" if of_layers else None,
                label=f"{SIDE_TITLES.get(view, view)}, {end.name if is_end else f'step {step}'}",
            )
    if axis.lines:
        axis.set(xscale="log", yscale="log")
        axis.set_ylabel("share of the variance")
        axis.yaxis.set_label_coords(-0.155, 0.5)
        bottom, top = axis.get_ylim()
        if top / bottom < FEW_DECADES:
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        for side, form in ((axis.xaxis, "{:g}".format), (axis.yaxis, power)):
            side.set_major_formatter(FuncFormatter(lambda value, _, form=form: form(value)))
            side.set_minor_locator(NullLocator())
        if not of_layers:
            axis.legend(fontsize=7, frameon=False)
    n = max((int(snapshots[s].get(f"n_rows/{c}", 0)) for s in ends for c in names), default=0)
    title = titles.get(clouds.removeprefix("*/"), f"site {clouds.removesuffix('/*')}")
    finish(axis, joined(title, f"N = {n:,}" * bool(n)), "rank of the direction")
    return figure


def power(value: float) -> str:
    """A share on a logarithmic axis, short: small powers of ten by their exponent.

    >>> power(1e-5), power(0.05)
    ('10⁻⁵', '0.05')
    """
    exponent = round(math.log10(value))
    small = exponent < -2 and math.isclose(value, 10.0**exponent)
    return f"10{superscript(exponent)}" if small else f"{value:g}"


def maps(
    points: Mapping[int, np.ndarray],
    title: str,
    labels: np.ndarray | None = None,
    classes: Sequence[str] = (),
) -> Figure:
    """Embeddings in two dimensions, `[M, 2]` by step: first, middle and last, one scale.

    `labels` [M] are classes (few whole numbers), which `classes` name, or scores.
    """
    steps = sorted(points)
    shown = [steps[i] for i in sorted({0, len(steps) // 2, len(steps) - 1})] if steps else []
    figure = Figure(figsize=(2.6 * max(1, len(shown)), 2.9), layout="constrained")
    figure.suptitle(title, fontsize=9, parse_math=False)
    reach = 1.05 * max((float(np.abs(points[step]).max()) for step in shown), default=1.0)
    names = class_names(labels)
    for number, step in enumerate(shown, start=1):
        axis = figure.add_subplot(1, len(shown), number)
        x, y = points[step].T
        if labels is None or not names:
            axis.scatter(x, y, s=5, c=labels, color=None, rasterized=True)
        for name, colour, mark in zip(names, COLOURS, MARKS, strict=False):
            chosen = labels == name
            how = {"s": 5, "color": colour, "marker": mark, "rasterized": True}
            axis.scatter(x[chosen], y[chosen], label=class_label(name, classes), **how)  # type: ignore[arg-type]
        reach = reach or 1.0
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        axis.set_title(f"step {step}", fontsize=8)
    if shown and names:
        handles, texts = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, texts, loc="outside lower center", ncols=len(names), fontsize=7)
    return figure


def class_label(number: float, classes: Sequence[str]) -> str:
    """A class by the task's name for it, where it is known."""
    return classes[int(number)] if number < len(classes) else f"label {number:g}"


def clouds_of(arrays: Mapping[str, np.ndarray], pattern: str) -> list[str]:
    """The clouds with a spectrum, of a view (`*/cls`) or of a site (`pooled/*`)."""
    names = [key.removeprefix("spectrum/") for key in arrays if key.startswith("spectrum/")]
    return sorted(fnmatch.filter(names, pattern))


def cloud_sections(
    drawn: Figures,
    snapshots: Snapshots,
    n_snapshots: int,
    end: End,
    data: Mapping[str, Any],
    sites: Sequence[str],
    titles: Mapping[str, str],
    classes: Sequence[str],
) -> list[Section]:
    """Spectra of views and sites, and the maps of `data` (see `map_data`), where there are some.

    `snapshots` are those of `n_snapshots` that are shown; `end` is one of them.
    """
    found = []
    patterns = [*(f"*/{view}" for view in VIEWS), *(f"{site}/*" for site in sites)]
    if shown := [p for p in patterns if any(clouds_of(a, p) for a in snapshots.values())]:
        parts = [
            drawn.add(spectra(snapshots, p, end, titles), f"spectra_{name}", f"spectra, {name}")
            for p, name in ((p, p.replace("*/", "").replace("/*", "_site")) for p in shown)
        ]
        first = min(snapshots)
        shows = f"Shown: {end.name}."
        if first != end.step:
            shows = (
                f"Layers: {end.name} in colours, step {first} in grey behind. Sites: {end.name} "
                f"solid, step {first} dashed."
            )
        text = (
            "Share of the variance in each principal direction, largest first; a flat line is "
            f"isotropic; below 10⁻⁶ of the largest nothing is drawn. {shows}"
        )
        names = {
            c.split("/")[0]
            for a in snapshots.values()
            for v in VIEWS
            for c in clouds_of(a, f"*/{v}")
        }
        legend = piece("layer_choice", colours=legend_of(names)) if names else Markup()
        found.append(Section("Spectra", legend + piece("grid", parts=parts, note=text), "spectra"))
    if data:
        start = data["start"]
        points = {
            step: a[f"map/{start}"]
            for step, a in snapshots.items()
            if f"map/{start}" in a and step <= end.step
        }
        labels = snapshots[max(snapshots)].get(f"label/{data['clouds'][start]['group']}")
        drawn.save(maps(aligned(points), start.replace("/", ", "), labels, classes), "maps")
        text = (
            "Embeddings along their two leading principal directions, at "
            f"{len(snapshots)} of {n_snapshots} snapshots. Each map is turned or mirrored to lie "
            "closest to the one before it (orthogonal Procrustes); distances within a map do not "
            "change. The directions themselves differ from step to step."
        )
        body = piece("map_viewer", note=text)
        found.append(Section("Maps of embeddings through training", body, "maps"))
    return found
