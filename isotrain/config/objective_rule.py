"""The read points of objectives, checked without importing anything."""

from __future__ import annotations

from typing import Any

from isotrain.config.read_points import read_point
from isotrain.config.reading import class_constant


def objective_mistakes(content: dict[str, Any]) -> list[str]:
    """What is wrong with the read points of the objectives of a run."""
    mistakes = []
    for name, node in content["objective"].items():
        if not isinstance(node, dict):  # told by its shape
            continue
        own = class_constant(str(node.get("_target_")), "reads") or ["pooled"]
        reads = node.get("reads", list(own))
        if not isinstance(reads, list) or not reads or len(set(map(str, reads))) != len(reads):
            mistakes.append(
                f"objective.{name}.reads must be a list that names each read point once and at "
                f"least one, got {reads}"
            )
            continue
        for text in reads:
            try:
                read_point(str(text))
            except ValueError as error:
                mistakes.append(f"objective.{name}.reads: {error}")
        if "before" in reads and "pooled" not in content["site"]:
            mistakes.append(
                f"objective.{name}.reads=[before] is the input of the isotropy layer at pooled, "
                f"and site={content['site']} has none there; add pooled to site, or read [pooled]"
            )
    return mistakes
