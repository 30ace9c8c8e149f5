"""Keys, shapes and values of a composed configuration; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from isotrain.arguments import Bounds
from isotrain.config.schema import Schema
from isotrain.config.signatures import nearest
from isotrain.config.targets import SEVERAL, group_of, is_allowed, not_allowed, targets
from isotrain.runs.secrets import literal_secrets

PARTIAL = ("isotropy", "freezing", "peft", "optimizer", "schedule", "logger")  # called later


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


def wrong_keys(content: dict[str, Any], schema: Schema) -> list[str]:
    """Keys that `+key=value` added to the schema, and empty ones."""
    found = []
    for section, keys in schema.sections.items():
        if section and section not in content:
            continue  # reported for the whole
        node = content[section] if section else content
        legal = [f.name for f in fields(keys)]
        if not isinstance(node, dict):
            found.append(f"{section} must have the keys {', '.join(legal)}, got {node!r}")
            continue
        found += [
            f"{section or schema.what} has no key {key}; {nearest(str(key), legal)}"
            for key in sorted(set(node) - set(legal), key=str)
        ]
        empty = [key for key in legal if node.get(key) == ""]
        found += [f"{key} is empty; give it a value, or null" for key in empty]
    return found


def is_part(node: Any) -> bool:
    """Whether a node names what it makes."""
    return (
        isinstance(node, dict) and isinstance(node.get("_target_"), str) and bool(node["_target_"])
    )


def is_whole(content: dict[str, Any], schema: Schema) -> bool:
    """Whether every needed group is a part and every section a mapping."""
    return all(is_part(content.get(group)) for group in schema.needed) and all(
        isinstance(content.get(section), dict) for section in filter(None, schema.sections)
    )


def wrong_shapes(content: dict[str, Any], schema: Schema) -> list[str]:
    """Groups and their entries that are no parts, or parts of another kind."""
    mistakes = [
        f"{group} must be one of its options, with a _target_"
        for group in schema.needed
        if not is_part(content.get(group))
    ]
    parts: dict[str, Any] = {group: content.get(group) for group in schema.needed}
    for group in SEVERAL:
        entries = content.get(group) or {}
        if not isinstance(entries, dict):
            mistakes.append(f"{group} must be a list of its options, {group}=[...]")
            continue
        parts |= {f"{group}.{name}": node for name, node in entries.items()}
        mistakes += [
            f"{group} has the name {str(name)[:80]!r}; use letters, digits, _, - and ."
            for name in entries
            if not re.fullmatch(r"\w[\w.-]*", str(name))
        ]
    for path, node in parts.items():
        if path.startswith("metric."):
            if not isinstance(node, dict) or "function" not in node:
                mistakes.append(f"{path} must have the key function, got {node!r}")
                continue
            mistakes += [
                f"{path}.{key}: a metric has one key, function"
                for key in sorted(set(node) - {"function"})
            ]
            node = node["function"]
        if not is_part(node):
            if path not in schema.needed:
                mistakes.append(f"{path} must be a part with a _target_, got {node!r}")
            continue
        if "_args_" in node:
            mistakes.append(f"{path}._args_: name the arguments instead")
        later = path.partition(".")[0] in (*PARTIAL, "metric")
        if bool(node.get("_partial_", False)) != later:
            mistakes.append(f"{path}._partial_ must be {'true' if later else 'left out'}")
    for path, node in targets(content):
        if not group_of(path):
            mistakes += [
                f"{path}.{key}: a part within a part has arguments alone; leave it out"
                for key in sorted({"_args_", "_partial_", "_recursive_", "_convert_"} & set(node))
            ]
    return mistakes


def secret_mistakes(cfg: DictConfig) -> list[str]:
    """Secrets in the configuration itself."""
    return [
        f"{key} is a secret, and a command line, a job file and a sweep would show it; give a "
        f"reference to the environment: '{key}=${{oc.env:NAME}}'"
        for key in literal_secrets(OmegaConf.to_container(cfg, resolve=False))
    ]


def target_mistakes(content: dict[str, Any]) -> list[str]:
    """Targets whose names are not allowed; none of them is imported."""
    return [
        f"{path}.{not_allowed(node['_target_'], group_of(path))}"
        for path, node in targets(content)
        if (node["_target_"] or not group_of(path))  # else it is rejected as no part
        and not is_allowed(str(node["_target_"]), group_of(path))
    ]


def number_mistakes(content: Mapping[str, Any], bounds: Mapping[str, Bounds]) -> list[str]:
    """Numbers outside of their bounds, by dotted key; the schema rejects other types."""
    mistakes = []
    for key, interval in bounds.items():
        section, _, leaf = key.rpartition(".")
        if problem := interval.refusal((content[section] if section else content).get(leaf)):
            mistakes.append(f"{key} {problem}")
    return mistakes
