"""Whether a configuration has the shape of a run: its keys, and a part in every group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf

from isotrain.config.binding import nearest
from isotrain.config.schema import SECTIONS, RunConfig

NEEDED = (
    *("task", "encoder", "pooling", "isotropy", "freezing", "peft", "source"),
    *("optimizer", "schedule", "trainer"),
)
PARTIAL = ("isotropy", "freezing", "peft", "optimizer", "schedule", "logger")  # called later


def wrong_keys(content: dict[str, Any], sections: Mapping[str, Any], root: str) -> list[str]:
    """Keys that `+key=value` slipped past the schema, and those that `~key` took away.

    `sections` maps dotted sections to dataclasses, "" to that of the whole, called `root`.
    """
    found = []
    for section, schema in sections.items():
        node = content.get(section, {}) if section else content
        legal = [f.name for f in fields(schema)]
        if not isinstance(node, dict):
            found.append(f"{section} must have the keys {', '.join(legal)}, got {node!r}")
            continue
        found += [
            f"{section or root} has no key {key}; {nearest(str(key), legal)}"
            for key in sorted(set(node) - set(legal), key=str)
        ]
        found += [
            f"{section + '.' if section else ''}{key} was deleted, and {root} needs it; leave it in"
            for key in legal
            if key not in node and not (section and section not in content)
        ]
    return found


def with_defaults(content: dict[str, Any]) -> dict[str, Any]:
    """The content with the schema's value for every key that is absent."""
    defaults = OmegaConf.to_container(OmegaConf.structured(RunConfig), enum_to_str=True)
    assert isinstance(defaults, dict)
    whole = {**defaults, **content}
    for section in filter(None, SECTIONS):
        if isinstance(whole[section], dict):
            whole[section] = {**defaults[section], **whole[section]}
    return whole


def is_part(node: Any) -> bool:
    """Whether a node names what it makes."""
    return (
        isinstance(node, dict) and isinstance(node.get("_target_"), str) and bool(node["_target_"])
    )


def is_whole(content: dict[str, Any]) -> bool:
    """Whether every group is a part and every section has its keys."""
    return all(is_part(content.get(group)) for group in NEEDED) and not any(
        not isinstance(node := content.get(section) if section else content, dict)
        or any(f.name not in node for f in fields(schema))
        for section, schema in SECTIONS.items()
    )


def wrong_shapes(content: dict[str, Any]) -> list[str]:
    """Groups and their entries that are no parts, or parts of another kind than is wanted."""
    mistakes = [
        f"{group} must be one of its options, with a _target_"
        for group in NEEDED
        if not is_part(content.get(group))
    ]
    parts: dict[str, Any] = {group: content.get(group) for group in NEEDED}
    for group in ("objective", "logger", "metric"):
        entries = content.get(group) or {}
        if not isinstance(entries, dict):
            mistakes.append(f"{group} must be a list of its options, {group}=[...]")
            continue
        parts |= {f"{group}.{name}": node for name, node in entries.items()}
    for path, node in parts.items():
        if path.startswith("metric."):
            if not isinstance(node, dict) or not {"needs", "function"} <= set(node):
                mistakes.append(f"{path} must have the keys needs and function, got {node!r}")
                continue
            more = sorted(set(node) - {"needs", "function", "groups"})
            mistakes += [f"{path}.{key}: a metric has needs, function, groups" for key in more]
            node = node["function"]
        if not is_part(node):
            if path not in NEEDED:
                mistakes.append(f"{path} must be a part with a _target_, got {node!r}")
            continue
        if "_args_" in node:
            mistakes.append(f"{path}._args_: name the arguments instead")
        later = path.partition(".")[0] in (*PARTIAL, "metric")
        if bool(node.get("_partial_", False)) != later:
            mistakes.append(f"{path}._partial_ must be {'true' if later else 'left out'}")
    return mistakes
