"""What does not go with the labels of a task: scores, or none in the training rows."""

from __future__ import annotations

from typing import Any

from isotrain.config.reading import class_constant


def task_mistakes(content: dict[str, Any]) -> list[str]:
    """What is wrong with what a run asks of the labels of its task."""
    target = content["task"]["_target_"]
    task = f"task={class_constant(target, 'name')}"
    has_none = class_constant(target, "has_loss") is False
    mistakes = _without_labels(content, task) if has_none else []
    if class_constant(target, "labels_are") == "scores":
        objectives = {} if has_none else content["objective"]
        mistakes += [
            f"{part} compares classes, and labels of {task} are scores; leave it out"
            for part in (
                *(f"objective={name}" for name, n in objectives.items() if _needs(n) == "classes"),
                *(f"metric={name}" for name, n in content["metric"].items() if _reads_labels(n)),
            )
        ]
    return mistakes


def _without_labels(content: dict[str, Any], task: str) -> list[str]:
    """What does not go with training rows that have no labels."""
    mistakes = []
    nodes = content["objective"].values()
    if all(isinstance(node, dict) and node.get("weight") == 0 for node in nodes):
        mistakes.append(
            f"{task} has nothing to learn from without an objective"
            + (" of a weight other than 0" if nodes else "; add objective=[simcse]")
        )
    for name, node in content["objective"].items():
        if _needs(node) in ("classes", "scored_pairs"):
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


def _needs(node: Any) -> Any:
    """What an objective says that it needs; None where its source does not tell."""
    target = node.get("_target_") if isinstance(node, dict) else None
    return class_constant(str(target), "needs")


def _reads_labels(node: Any) -> bool:
    """Whether a metric is one of labels."""
    return isinstance(node, dict) and node.get("needs") == "labels"
