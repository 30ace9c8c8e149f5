"""Sections of a page on isotropy by layer: curves, heat-maps, profiles; each may be a file too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from markupsafe import Markup

from isotrain.keys import DEV, TRAINING, VIEWS, Place
from isotrain.pages.figures import heatmap, layer_curves, layers, site_curves
from isotrain.pages.page import Figures, Section
from isotrain.pages.panels import layer_colours
from isotrain.pages.readings import READINGS, base_of, label
from isotrain.pages.rows import (
    Rows,
    Series,
    isotropy_places,
    layers_of,
    measured,
    ranked,
    sites_of,
)

NUMBERED = ("_2", "_3")  # parts that tables have, and no curve


def isotropy_sections(
    drawn: Figures, rows: Rows, places: Mapping[Place, Series], shown: Sequence[str]
) -> list[Section]:
    """Curves by layer, the headline metrics open and the others folded; heat-maps and profiles."""
    if not shown:
        return [Section("Isotropy by layer", items(["No isotropy was measured in this run."]))]
    names = sorted({p.where for p in places if p.view in VIEWS})
    body = layer_choice(layer_colours(names)) if names else Markup()
    for metric in shown:
        body += _curves(drawn, rows, places, metric, label(metric)) + _reading(places, metric)
    others = [m for m in ranked(measured(places)) if m not in shown and not m.endswith(NUMBERED)]
    for base, parts in groupby(others, key=base_of):
        panels = Markup()
        for metric in parts:
            title = label(metric) if metric != base else ""
            panels += _curves(drawn, rows, places, metric, title, file=False)
        body += folded(label(base), panels + _reading(places, base))
    in_training = isotropy_places(rows, source=TRAINING)
    panels = Markup()
    for metric in ranked(measured(in_training)):
        if not metric.endswith(NUMBERED):
            panels += _curves(drawn, rows, in_training, metric, label(metric), False, TRAINING)
    if panels:
        body += folded("On the rows of training steps, as training sees them", panels)
    maps_of, profiles = Markup(), Markup()
    for metric in shown:
        heats, lines = [], []
        for view in VIEWS:
            if layers_of((p for p in places if p.metric == metric), view):
                text = f"{label(metric)} of {TITLES[view]}"
                heat, line = heatmap(rows, metric, view), layers(rows, metric, view)
                heats.append(drawn.add(heat, f"heatmap_{metric}_{view}", f"{text}, layer × step"))
                lines.append(drawn.add(line, f"layers_{metric}_{view}", f"{text}, by layer"))
        maps_of += grid(
            heats, label(metric), below="Each panel has its own colours. Grey: no value."
        )
        profiles += grid(lines, label(metric))
    sections = [Section("Isotropy by layer", body)]
    if names:
        sections.append(Section("Layer × step", maps_of))
        sections.append(Section("From the lowest to the highest layer", profiles))
    return sections


def _curves(
    drawn: Figures,
    rows: Rows,
    places: Mapping[Place, Series],
    metric: str,
    title: str = "",
    file: bool = True,
    source: str = DEV,
) -> Markup:
    """A row of panels: the views of layers, and the sites."""
    own = [place for place in places if place.metric == metric]
    parts = []
    for view in VIEWS:
        if layers_of(own, view):
            figure = layer_curves(rows, metric, view, source)
            text = f"{label(metric)} of {TITLES[view]} at every layer over the optimizer steps"
            parts.append(drawn.add(figure, f"{metric}_{view}", text, file))
    if sites_of(own):
        text = f"{label(metric)} around the isotropy layer over the optimizer steps"
        parts.append(drawn.add(site_curves(rows, metric, source), f"{metric}_sites", text, file))
    return grid(parts, title)


def _reading(places: Mapping[Place, Series], metric: str) -> Markup:
    """How a metric is read, and what is shaded."""
    reading = READINGS.get(base_of(metric))
    texts = [f"Range {reading.span}; {reading.says}." if reading else ""]
    if any(p.metric == f"{metric}_null_low" for p in places):
        texts.append("Shaded: what chance gives (2.5 to 97.5 %).")
    return note(" ".join(filter(None, texts))) if any(texts) else Markup()
