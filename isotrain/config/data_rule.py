"""Changes of the training data: which values they may have, and which go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isotrain.arguments import Bounds

BOUNDS = {
    "fraction": Bounds(above=0, most=1),
    "n_train": Bounds(least=1),
    "label_skew": Bounds(least=0),
    "label_noise": Bounds(least=0, most=1),
}


def data_mistakes(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with the changes that the section `data` asks for.

    >>> data_mistakes({"fraction": 0.5, "n_train": 100, "label_skew": 0.0, "label_noise": 0.0})
    ['data.fraction=0.5 and data.n_train=100 both say how many rows are kept; give one of them']
    """
    mistakes = [
        f"data.{key} {refusal}"
        for key, bounds in BOUNDS.items()
        if (refusal := bounds.refusal(data[key]))
    ]
    if isinstance(skew := data["label_skew"], int | float) and skew >= 1:
        mistakes.append(f"data.label_skew must be below 1, got {skew}: the last class needs rows")
    if data["n_train"] is not None and data["fraction"] != 1:
        mistakes.append(
            f"data.fraction={data['fraction']} and data.n_train={data['n_train']} both say how "
            "many rows are kept; give one of them"
        )
    return mistakes
