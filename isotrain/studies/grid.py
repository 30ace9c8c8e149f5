"""A grid of keys × values as arms of a study, each with a name that can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from isotrain.config.compose import written

KEY = r"\+{0,2}[A-Za-z_][\w/]*(\.\w+)*"  # of an override that gives a value


def grid_arms(grid: Mapping[str, Sequence[Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """Name and overrides of an arm for each element of the product; the last key changes first.

    A name has the leaf of each key and its value, joined by `_`; words of a key without a dot,
    such as `isotropy` or `site`, stand alone.

    >>> grid_arms({"site": [["tokens"], ["layer_3"]], "isotropy.removal.strength": [0.5]})[1]
    ('layer_3_strength_0.5', ('site=[layer_3]', 'isotropy.removal.strength=0.5'))
    """
    arms = []
    for values in product(*grid.values()) if grid else ():
        pairs = list(zip(grid, values, strict=True))
        name = "_".join(_part(key, value) for key, value in pairs)
        arms.append((name, tuple(f"{key}={written(value)}" for key, value in pairs)))
    return arms


def grid_mistakes(grid: Any) -> list[str]:
    """What is wrong in a `grid`, and what to write instead."""
    if not isinstance(grid, dict) or not grid:
        return [
            "grid must map keys to lists of values, such as isotropy.removal.strength: [0.5, 1.0]"
        ]
    mistakes = []
    for key, values in grid.items():
        if not isinstance(key, str) or not re.fullmatch(KEY, key):
            mistakes.append(f"grid has the key {key!r}; write one of a run, as isotropy.n_clusters")
        elif not isinstance(values, list) or not values:
            mistakes.append(f"grid.{key} must be a list of values such as [1, 2], got {values!r}")
        elif key.lstrip("+") == "seed":
            mistakes.append("grid.seed is what seeds says: every arm has every seed; leave it out")
        else:
            mistakes += [
                f"grid.{key} has {value!r}; a value is a number, a word, true, false, null, or a "
                "list of these (of several keys at once make arms)"
                for value in values
                if not _is_value(value)
            ]
    if mistakes:
        return mistakes
    names = [name for name, _ in grid_arms(grid)]
    return [
        f"grid makes {names.count(name)} arms with the name {name}; give a value once, and write "
        "arms that differ in other signs than letters, digits and . under arms, with names of yours"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_value(item) and not isinstance(item, list) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _part(key: str, value: Any) -> str:
    """What a name has of one key."""
    leaf = re.split(r"[./+]", key)[-1]
    items = value if isinstance(value, list) else [value]
    said = "_".join(re.sub(r"^-", "minus_", _plain(item)) for item in items)
    said = re.sub(r"[^A-Za-z0-9_.]+", "_", said).strip("_") or "none"
    alone = "." not in key and bool(items) and all(isinstance(v, str) for v in items)
    return said if alone else f"{leaf}_{said}"


def _plain(value: Any) -> str:
    """A value as yaml and Hydra read it, words without quotes."""
    return str(value) if isinstance(value, str | float) else json.dumps(value)
