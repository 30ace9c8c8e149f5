"""Sections of a page on the clouds of snapshots: spectra, and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isotrain.keys import VIEWS
from isotrain.pages.cloud_figures import Snapshots, clouds_of, maps, spectra
from isotrain.pages.maps import aligned
from isotrain.pages.page import Figures, Section, grid, map_viewer, note


def cloud_sections(
    drawn: Figures, snapshots: Snapshots, data: Mapping[str, Any], sites: Sequence[str]
) -> list[Section]:
    """Spectra of views and sites, and the maps of `data` (see `map_data`), where there are some."""
    found = []
    patterns = [*(f"*/{view}" for view in VIEWS), *(f"{site}/*" for site in sites)]
    shown = [p for p in patterns if any(clouds_of(arrays, p) for arrays in snapshots.values())]
    if shown:
        parts = [
            drawn.add(spectra(snapshots, p), f"spectra_{name}", f"spectra, {name}")
            for p, name in ((p, p.replace("*/", "").replace("/*", "_site")) for p in shown)
        ]
        first, last = min(snapshots), max(snapshots)
        ends = f"Dashed: step {first}; solid: step {last}." if first < last else f"Step {last}."
        text = (
            "Share of the variance in each principal direction, largest first; a flat line is "
            f"isotropic. {ends}"
        )
        found.append(Section("Spectra", grid(parts, below=text)))
    if data:
        start = data["start"]
        points = {step: a[f"map/{start}"] for step, a in snapshots.items() if f"map/{start}" in a}
        group = data["clouds"][start]["group"]
        labels = snapshots[max(snapshots)].get(f"label/{group}")
        drawn.save(maps(aligned(points), start.replace("/", ", "), labels), "maps")
        text = (
            "The rows of a cloud along its two leading principal directions, at "
            f"{len(data['steps'])} of {data['n_steps']} snapshots. Each map is turned or mirrored "
            "to lie closest to the one before it (orthogonal Procrustes on the common rows); "
            "distances within a map do not change. The directions themselves differ from step to "
            "step."
        )
        found.append(Section("Maps of rows through training", map_viewer() + note(text)))
    return found
