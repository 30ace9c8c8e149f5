"""Changes of the training data: which values they may have, and which go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isotrain.arguments import Bounds
from isotrain.config.any_root import number_mistakes

BOUNDS = {
    "data.fraction": Bounds(above=0, most=1),
    "data.n_train": Bounds(1),
    "data.label_skew": Bounds(0, below=1),  # the last class needs rows
    "data.label_noise": Bounds(0, 1),
}


def data_mistakes(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with the changes that the section `data` asks for.

    >>> data_mistakes({"fraction": 0.5, "n_train": 100})
    ['data.fraction=0.5 and data.n_train=100 both say how many rows are kept; give one of them']
    """
    mistakes = number_mistakes({"data": data}, BOUNDS)
    if data["n_train"] is not None and data["fraction"] != 1:
        mistakes.append(
            f"data.fraction={data['fraction']} and data.n_train={data['n_train']} both say how "
            "many rows are kept; give one of them"
        )
    return mistakes
