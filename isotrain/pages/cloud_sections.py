"""Sections of a page on the clouds of snapshots: spectra, and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from isotrain.pages.cloud_figures import Snapshots, clouds_of, maps, spectra
from isotrain.pages.maps import aligned
from isotrain.pages.page import Figures, Section, piece
from isotrain.pages.panels import legend_of
from isotrain.pages.rows import End
from isotrain.runs.keys import VIEWS


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
