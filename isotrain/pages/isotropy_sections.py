"""Sections of a page on isotropy by layer: curves, heat-maps, profiles; each may be a file too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from isotrain.pages.figures import heatmap, layer_curves, layers, site_curves
from isotrain.pages.page import Figures, Section, piece
from isotrain.pages.panels import legend_of
from isotrain.pages.parts import part_readings
from isotrain.pages.readings import READINGS, base_of, label, view_titles
from isotrain.pages.rows import (
    Rows,
    Series,
    end_of,
    gaussian_isoscore,
    isotropy_series,
    layers_of,
    measured,
    ranked,
    sites_of,
)
from isotrain.runs.keys import DEV, TRAINING, VIEWS, CurveKey

NUMBERED = ("_2", "_3")  # parts that tables have, and no curve


def isotropy_sections(
    drawn: Figures,
    result: Mapping[str, Any],
    rows: Rows,
    curves: Mapping[CurveKey, Series],
    shown: Sequence[str],
) -> list[Section]:
    """Curves by layer, the headline metrics open and the others folded; heat-maps and profiles."""
    if not shown:
        text = "No isotropy was measured in this run."
        return [Section("Isotropy by layer", piece("note", text=text))]
    titles, width = view_titles(result), result.get("width")
    body = Markup()
    if names := sorted({p.where for p in curves if p.view in VIEWS}):
        body += piece("layer_choice", colours=legend_of(names))
    for metric in shown:
        body += _curves(drawn, rows, curves, metric, titles, label(metric))
        body += _reading(curves, metric, width)
    others = [m for m in ranked(measured(curves)) if m not in shown and not m.endswith(NUMBERED)]
    for base, parts in groupby(others, key=base_of):
        panels = Markup()
        for metric in parts:
            title = label(metric) if metric != base else ""
            panels += _curves(drawn, rows, curves, metric, titles, title, file=False)
            for _, says in part_readings([metric]):
                panels += piece("note", text=f"{says[0].upper()}{says[1:]}.")
        panels += _reading(curves, base, width)
        body += piece("folded", title=label(base), body=panels, key=base)
    in_training = isotropy_series(rows, source=TRAINING)
    panels = Markup()
    for metric in ranked(measured(in_training)):
        if not metric.endswith(NUMBERED):
            title = label(metric)
            panels += _curves(drawn, rows, in_training, metric, titles, title, False, TRAINING)
    if panels:
        title = "On the rows of training steps, as training sees them"
        body += piece("folded", title=title, body=panels)
    sections = [Section("Isotropy by layer", body)]
    if names:
        sections += _by_layer(drawn, result, rows, curves, shown)
    return sections


def _by_layer(
    drawn: Figures,
    result: Mapping[str, Any],
    rows: Rows,
    curves: Mapping[CurveKey, Series],
    shown: Sequence[str],
) -> list[Section]:
    """Layer × step as colours, and values over layers at the first evaluation and at the end."""
    titles, end = view_titles(result), end_of(result, rows)
    maps_of, profiles = Markup(), Markup()
    for metric in shown:
        heats, lines = [], []
        for view in VIEWS:
            if layers_of((p for p in curves if p.metric == metric), view):
                text = f"{label(metric)} of {titles[view]}"
                heat = heatmap(rows, metric, view, titles)
                line = layers(rows, metric, view, end, titles)
                heats.append(drawn.add(heat, f"heatmap_{metric}_{view}", f"{text}, layer × step"))
                lines.append(drawn.add(line, f"layers_{metric}_{view}", f"{text}, by layer"))
        note = "Each panel has its own colours. White with a cross: no value."
        maps_of += piece("grid", parts=heats, caption=label(metric), note=note)
        profiles += piece("grid", parts=lines, caption=label(metric))
    return [
        Section("Layer × step", maps_of),
        Section("From the lowest to the highest layer", profiles),
    ]


def _curves(
    drawn: Figures,
    rows: Rows,
    curves: Mapping[CurveKey, Series],
    metric: str,
    titles: Mapping[str, str],
    caption: str = "",
    file: bool = True,
    source: str = DEV,
) -> Markup:
    """A row of panels: the views of layers, and the sites."""
    own = [curve for curve in curves if curve.metric == metric]
    parts = []
    for view in VIEWS:
        if layers_of(own, view):
            figure = layer_curves(rows, metric, view, source, titles)
            text = f"{label(metric)} of {titles[view]} at every layer over the optimizer steps"
            parts.append(drawn.add(figure, f"{metric}_{view}", text, file))
    if sites_of(own):
        text = f"{label(metric)} around the isotropy layer over the optimizer steps"
        parts.append(drawn.add(site_curves(rows, metric, source), f"{metric}_sites", text, file))
    return piece("grid", parts=parts, caption=caption, key=metric)


def _reading(curves: Mapping[CurveKey, Series], metric: str, width: int | None) -> Markup:
    """How a metric is read, what chance gives it, and what is shaded."""
    reading = READINGS.get(base_of(metric))
    texts = [f"Range {reading.span}; {reading.says}."] if reading else []
    if metric == "isoscore" and width:
        texts.append(gaussian_isoscore(curves, width))
    if any(p.metric == f"{metric}_null_low" for p in curves):
        texts.append("Shaded: what chance gives (2.5 to 97.5 %).")
    return piece("note", text=" ".join(texts)) if texts else Markup()
