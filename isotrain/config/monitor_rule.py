"""What the monitor is to measure: which metrics count, and of which rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isotrain.config.reading import signature
from isotrain.config.targets import is_allowed
from isotrain.runs.keys import EXTRAS, grouped_by, metric_of

OURS = {file.stem for file in Path(__file__).parents[1].glob("metrics/[a-z]*.py")}


def monitor_mistakes(content: dict[str, Any]) -> list[str]:
    """Rules about `monitor` and `metric`, each broken one as a sentence.

    >>> monitor = {"headline": ["lid"], "views": ["cls"], "every_steps": 0, "map_rows": 0}
    >>> monitor_mistakes({"monitor": monitor, "metric": {"isoscore": {"needs": "rows"}}})
    ['monitor.headline=lid is not measured; choose among isoscore, or add it to metric=[...]']
    """
    mistakes = []
    monitor, metrics = content["monitor"], content["metric"]
    known = OURS | set(metrics)  # so that isoscore_corrected is no part of isoscore
    for name in monitor["headline"] or ():
        if metric_of(name, known) not in metrics:
            measured = f"choose among {', '.join(metrics)}, or " if metrics else ""
            mistakes.append(
                f"monitor.headline={name} is not measured; {measured}add it to metric=[...]"
            )
    if len(set(monitor["views"])) < len(monitor["views"]):
        mistakes.append(f"monitor.views names a view twice: {', '.join(monitor['views'])}")
    if monitor["map_rows"] == 1:
        mistakes.append("monitor.map_rows must be at least 2, or 0 for no snapshots, got 1")
    sees_tokens = "tokens" in monitor["views"] or any(
        s != "pooled" for s in content.get("site", ())
    )
    for name, node in metrics.items():
        if not isinstance(node, dict):  # told by its shape
            continue
        mistakes += _unlike_its_function(name, node)
        if node.get("needs") == "groups" and not sees_tokens:
            mistakes.append(
                f"metric={name} needs groups of tokens; add tokens to monitor.views, or leave it "
                "out"
            )
    return mistakes


def _unlike_its_function(name: str, node: dict[str, Any]) -> list[str]:
    """Where the `needs` and `groups` of a metric are not what its function takes, or a run has."""
    part = node.get("function")
    target = str(part.get("_target_")) if isinstance(part, dict) else ""
    bound = signature(target) if is_allowed(target) else None
    if bound is None:  # told elsewhere, or its source does not tell
        return []
    takes = next((extra for extra in EXTRAS if extra in bound.arguments), "rows")
    if takes == "positives":
        return [
            f"metric.{name} takes positives, and a run has rows, labels, groups, reference; leave "
            "it out, and call it on clouds of yours (isotrain.metrics.suite)"
        ]
    mistakes = []
    if node.get("needs") != takes:
        mistakes.append(
            f"metric.{name}.needs must be {takes}, which {target} takes, got {node.get('needs')}; "
            f"write needs: {takes}"
        )
    if takes != "groups" and "groups" in node:
        mistakes.append(f"metric.{name}.groups: {target} takes no groups; leave it out")
    elif takes == "groups" and node.get("groups") != (own := grouped_by(bound.arguments[takes])):
        mistakes.append(
            f"metric.{name}.groups must be {own}, which {target} takes, got {node.get('groups')}; "
            f"write groups: {own} (a function takes words, unless it says groups: "
            "Annotated[Tensor, 'sentences'])"
        )
    return mistakes
