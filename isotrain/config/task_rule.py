"""What does not go with a task that has no loss and no labels of its own."""

from __future__ import annotations

from typing import Any

from isotrain.config.reading import class_constant


def task_mistakes(content: dict[str, Any]) -> list[str]:
    """What is wrong with a run on a task whose training rows have no labels."""
    target = content["task"]["_target_"]
    if class_constant(target, "has_loss") is not False:
        return []
    task, mistakes = f"task={class_constant(target, 'name')}", []
    if not content["objective"]:
        mistakes.append(
            f"{task} has nothing to learn from without an objective; add objective=[simcse]"
        )
    for name, node in content["objective"].items():
        part = str(node["_target_"]) if isinstance(node, dict) and "_target_" in node else ""
        if class_constant(part, "needs") in ("classes", "scored_pairs"):
            mistakes.append(
                f"objective={name} reads labels, and the training rows of {task} have none; use "
                "objective=[simcse], or a task with labels"
            )
        if isinstance(node, dict) and node.get("positive_labels") is not None:
            mistakes.append(
                f"objective.{name}.positive_labels chooses pairs by their label, and the training "
                f"rows of {task} have none; leave it out, or use a task with labels"
            )
    if content["isotropy"].get("protect") == "labels":
        mistakes.append(
            f"isotropy.protect=labels reads labels, and the training rows of {task} have none; use "
            "isotropy.protect=none, or a task with labels"
        )
    if content["training"].get("select") == "holdout":
        mistakes.append(
            f"training.select=holdout scores training rows, and those of {task} have no labels; "
            "use training.select=best"
        )
    return mistakes
