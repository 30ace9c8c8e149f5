"""What the monitor is to measure: which metrics count, and of which rows."""

from __future__ import annotations

from typing import Any

from isotrain.keys import Place, is_of


def monitor_mistakes(content: dict[str, Any]) -> list[str]:
    """Rules about `monitor` and `metric`, each broken one as a sentence.

    >>> monitor = {"headline": ["lid"], "views": ["cls"], "every_steps": 0, "map_rows": 0}
    >>> monitor_mistakes({"monitor": monitor, "metric": {"isoscore": {"needs": "rows"}}})
    ['monitor.headline=lid is not measured; choose among isoscore, or add it to metric=[...]']
    """
    mistakes = []
    monitor, metrics = content["monitor"], content["metric"]
    for name in monitor["headline"] or ():
        if not is_of(Place(name, "", ""), metrics):
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
        if isinstance(node, dict) and node.get("needs") == "groups" and not sees_tokens:
            mistakes.append(
                f"metric={name} needs groups of tokens; add tokens to monitor.views, or leave it "
                "out"
            )
    return mistakes
