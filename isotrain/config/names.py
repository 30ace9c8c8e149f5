"""Names of a run's parts: the config file that was chosen, such as `clip` in `isotropy=clip`.

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
    """The configured name of a part; in a record without names, from its class.

    >>> part_name({"isotropy": {"_target_": "isotrain.transforms.zca.ZCA"}}, "isotropy")
    'zca'
    """
    if name := (config.get("names") or {}).get(group):
        return str(name)
    parts = str((config.get(group) or {}).get("_target_", "")).split(".")
    return parts[-1] if group in BY_FUNCTION or len(parts) < 2 else parts[-2]


def method_name(config: Mapping[str, Any], group: str) -> tuple[str, bool]:
    """The name of a part, to look up its source, and whether keys of its shipped file were changed.

    >>> shipped = _keys("isotropy", "clip")
    >>> config = {"isotropy": shipped | {"n_components": 5}, "names": {"isotropy": "clip"}}
    >>> method_name(config, "isotropy")
    ('clip', True)
    """
    name = (config.get("names") or {}).get(group)
    if name not in names(group):
        return part_name(config, group), False
    defaults, run_keys = _keys(group, name), dotted(config.get(group) or {})
    return name, any(
        not str(defaults.get(key)).startswith("${") and defaults.get(key) != run_keys.get(key)
        for key in {*defaults, *run_keys}
    )


def methods(config: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """`method_name` of layer, objectives, freezing schedule and optimizer; only a layer can vary.

    Objectives are named by their module: each has a separate one.
    """
    targets = [str(node.get("_target_")) for node in (config.get("objective") or {}).values()]
    objectives = [(target.split(".")[-2], False) for target in targets if "." in target]
    training_parts = [(method_name(config, group)[0], False) for group in ("freezing", "optimizer")]
    return [method_name(config, "isotropy"), *objectives, *training_parts]


@cache
def _keys(group: str, name: str) -> dict[str, Any]:
    """The dotted keys of a shipped file, including those of its defaults."""
    content = yaml.safe_load(text_of(group, name)) or {}
    keys: dict[str, Any] = {}
    for base in content.pop("defaults", ()):
        keys |= {} if base == "_self_" else _keys(group, base)
    return keys | dotted(content)


def sources(config: Mapping[str, Any]) -> list[str]:
    """Sources of the layer, objectives, freezing schedule and optimizer of a run."""
    return [
        f"{name}{' with changed keys' if is_changed else ''}: {source}"
        for name, is_changed in dict.fromkeys(methods(config))
        if (source := citation(name))
    ]
