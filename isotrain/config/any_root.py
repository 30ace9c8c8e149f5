"""Rules of every composed configuration, whatever its root: values, secrets, targets, numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from isotrain.arguments import Bounds
from isotrain.config.binding import binding_mistakes
from isotrain.config.targets import is_allowed, targets
from isotrain.runs.secrets import literal_secrets

BOUNDS_OF_ANY = {"seed": Bounds(0, 2**32 - 1), "threads": Bounds(1, 1024)}


def missing_keys(cfg: DictConfig) -> list[str]:
    """Keys that must be given and are not; nothing is resolved."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("", OmegaConf.to_container(cfg, resolve=False))]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            waiting += [(f"{path}.{key}" if path else str(key), v) for key, v in node.items()]
        elif node == "???":
            found.append(path)
    return sorted(found)


def resolved(cfg: DictConfig) -> tuple[dict[str, Any], list[str]]:
    """The plain content, with what could not be resolved left as it is and named."""
    content: dict[str, Any] = {}
    mistakes = []
    whole = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
    assert isinstance(whole, dict)
    for key in map(str, whole):
        try:
            value = cfg[key]
            if OmegaConf.is_config(value):
                content[key] = OmegaConf.to_container(value, resolve=True, enum_to_str=True)
            else:
                content[key] = getattr(value, "value", value)  # an enumeration as its name
        except InterpolationResolutionError as error:
            content[key] = whole[key]
            variable = re.search(r"Environment variable '(\w+)'", str(error))
            if variable and variable[1] == "ISOTRAIN_DATA_DIR":
                mistakes.append(
                    "source=local reads the folder that ISOTRAIN_DATA_DIR names, and it is not "
                    "set; export ISOTRAIN_DATA_DIR=<folder with rte/, wic/, stsb/>, or use "
                    "source=hub or source=demo"
                )
            elif variable:
                mistakes.append(f"{key} reads the environment variable {variable[1]}; set it")
            else:
                mistakes.append(f"{error.full_key or key}: {str(error).splitlines()[0]}")
    return content, mistakes


def secret_mistakes(cfg: DictConfig) -> list[str]:
    """Secrets that stand in the configuration itself."""
    return [
        f"{key} is a secret, and a command line, a job file and a sweep would show it; give a "
        f"reference to the environment: '{key}=${{oc.env:NAME}}'"
        for key in literal_secrets(OmegaConf.to_container(cfg, resolve=False))
    ]


def target_mistakes(content: dict[str, Any]) -> list[str]:
    """Targets that are not allowed, and keys that a target does not take."""
    mistakes = []
    for path, node in targets(content):
        if is_allowed(str(node["_target_"])):
            mistakes += binding_mistakes(path, node)
        else:
            mistakes.append(
                f"{path}._target_={node['_target_']} is not allowed: a target is a part defined in "
                "isotrain, or in a package of yours that ISOTRAIN_ALLOW=<package> names, or an "
                "optimizer of torch, or a logger of pytorch_lightning (a package of yours must be "
                "importable: install it, or set PYTHONPATH)"
            )
    return mistakes


def number_mistakes(content: Mapping[str, Any], bounds: Mapping[str, Bounds]) -> list[str]:
    """Numbers outside of their bounds, by dotted key; another type is told by the signature."""
    mistakes = []
    for key, interval in bounds.items():
        section, _, leaf = key.rpartition(".")
        if refusal := interval.refusal((content[section] if section else content).get(leaf)):
            mistakes.append(f"{key} {refusal}")
    return mistakes
