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
    positives = [node.get("positives") if isinstance(node, dict) else None for node in nodes]
    if content["task"].get("hard_negatives") and positives and set(positives) == {"dropout"}:
        mistakes.append(
            "task.hard_negatives=true gives pairs a negative of their own, and with "
            "positives=dropout no objective looks at pairs; use objective.<name>.positives=pair, "
            "or task.hard_negatives=false"
        )
    if (content["isotropy"].get("protect") or {}).get("labels"):
        mistakes.append(
            f"isotropy.protect.labels=true reads labels, and the training rows of {task} have "
            "none; use isotropy.protect.labels=false, or a task with labels"
        )
    mistakes += [
        f"data.{key} changes labels or pairs, and the training rows of {task} have no labels; "
        "leave it out, or use a task with labels"
        for key in ("label_skew", "label_noise", "hypothesis_only")
        if content["data"].get(key)
    ]
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
