"""By which name a run's parts go: the file that was chosen, as `clip` of `isotropy=clip`.

One class can be several methods: `cluster_pca` and `published` are both `ClusterPCA`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from isotrain.config.compose import dotted
from isotrain.config.shipped import names, text_of
from isotrain.resources.references import citation

BY_FUNCTION = ("freezing", "peft")  # groups of which one module has several parts


def part_name(config: Mapping[str, Any], group: str) -> str:
    """The configured name of a part; by its class in a record without names.

    >>> part_name({"isotropy": {"_target_": "isotrain.transforms.zca.ZCA"}}, "isotropy")
    'zca'
    """
    if name := (config.get("names") or {}).get(group):
        return str(name)
    parts = str((config.get(group) or {}).get("_target_", "")).split(".")
    return parts[-1] if group in BY_FUNCTION or len(parts) < 2 else parts[-2]


def method_name(config: Mapping[str, Any], group: str) -> tuple[str, bool]:
    """The name of a part, for its source, and whether keys of its shipped file were changed.

    >>> shipped = _keys("isotropy", "clip")
    >>> config = {"isotropy": shipped | {"n_components": 5}, "names": {"isotropy": "clip"}}
    >>> method_name(config, "isotropy")
    ('clip', True)
    """
    name = (config.get("names") or {}).get(group)
    if name not in names(group):
        return part_name(config, group), False
    shipped, own = _keys(group, name), dotted(config.get(group) or {})
    return name, any(
        not str(shipped.get(key)).startswith("${") and shipped.get(key) != own.get(key)
        for key in {*shipped, *own}
    )


def methods(config: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """`method_name` of layer, objectives, freezing schedule and optimizer; only a layer can vary.

    Objectives go by their module: each has one of its own.
    """
    targets = [str(node.get("_target_")) for node in (config.get("objective") or {}).values()]
    objectives = [(target.split(".")[-2], False) for target in targets if "." in target]
    others = [(method_name(config, group)[0], False) for group in ("freezing", "optimizer")]
    return [method_name(config, "isotropy"), *objectives, *others]


@cache
def _keys(group: str, name: str) -> dict[str, Any]:
    """The dotted keys of a shipped file, with those of the files that it builds on."""
    content = yaml.safe_load(text_of(group, name)) or {}
    found: dict[str, Any] = {}
    for base in content.pop("defaults", ()):
        found |= {} if base == "_self_" else _keys(group, base)
    return found | dotted(content)


def sources(config: Mapping[str, Any]) -> list[str]:
    """Sources of the layer, objectives, freezing schedule and optimizer of a run."""
    return [
        f"{name}{' with changed keys' if is_changed else ''}: {work}"
        for name, is_changed in dict.fromkeys(methods(config))
        if (work := citation(name))
    ]
