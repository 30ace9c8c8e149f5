"""The rules of selecting weights by evaluations, and of what they are made on."""

from __future__ import annotations

from typing import Any

from isotrain.config.schema import DataConfig


def selection_mistakes(content: dict[str, Any]) -> list[str]:
    """A share that is not held out, and evaluations that never come."""
    select, holdout = content["training"]["select"], content["data"]["holdout"]
    mistakes = []
    if select != "holdout" and holdout != DataConfig.holdout:
        mistakes.append(
            f"data.holdout={holdout} holds nothing out with training.select={select}; use "
            "training.select=holdout, or leave it out"
        )
    asked = {
        f"training.select={select}": select != "last",
        f"training.patience={(n := content['training']['patience'])}": n is not None,
    }
    if content["trainer"].get("limit_val_batches") == 0:
        mistakes += [
            f"{key} goes by evaluations, and trainer.limit_val_batches=0 makes none; leave one out"
            for key, is_asked in asked.items()
            if is_asked
        ]
    return mistakes
