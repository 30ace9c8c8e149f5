"""Validate a configuration: first its keys, then its imported parts."""

import re
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from isotrain.config.compose import dotted
from isotrain.config.rules import FACTS, FACTS_OF_PARTS
from isotrain.config.schema import RUN, Schema
from isotrain.config.signatures import (
    SUPPLIED,
    argument_mistakes,
    load,
    nearest,
    supplied_mistake,
)
from isotrain.config.targets import (
    SEVERAL,
    group_of,
    is_allowed,
    is_of_library,
    not_allowed,
    targets,
)
from isotrain.runs.secrets import literal_secrets

PARTIAL = ("isotropy", "freezing", "peft", "optimizer", "schedule", "logger")  # called later


def mistakes_in(cfg: DictConfig, schema: Schema = RUN) -> list[str]:
    """Every validation error in the keys of a run (or an analysis); nothing is imported."""
    if missing := missing_keys(cfg):
        return [f"{key} has no value; set {key}=..." for key in missing]
    content, mistakes = resolved(cfg)
    if ours := SUPPLIED["trainer"] & set(content.get("trainer") or ()):
        return [supplied_mistake(f"trainer.{key}") for key in sorted(ours)]
    mistakes += wrong_keys(content, schema)
    mistakes += [
        f"{key} is a secret, and a command line and a study would show it; give a "
        f"reference to the environment: '{key}=${{oc.env:NAME}}'"
        for key in literal_secrets(OmegaConf.to_container(cfg, resolve=False))
    ]
    mistakes += wrong_shapes(content, schema)
    mistakes += target_mistakes(content)
    is_whole = all(is_part(content.get(group)) for group in schema.needed)
    if is_whole and all(isinstance(content.get(name), dict) for name in schema.sections if name):
        for key, bounds in schema.bounds.items():
            section, _, leaf = key.rpartition(".")
            if problem := bounds.refusal((content[section] if section else content).get(leaf)):
                mistakes.append(f"{key} {problem}")
        if schema is RUN:
            mistakes += [sentence for fact in FACTS for sentence in fact(content)]
    return mistakes


def part_mistakes(cfg: DictConfig, schema: Schema = RUN) -> list[str]:
    """Validation errors of imported parts, after `mistakes_in`; Lightning is imported last."""
    content, _ = resolved(cfg)
    quick, slow = dict(targets(content)), {}
    for path in [
        p for p in quick if p.startswith("logger.") or is_of_library(quick[p]["_target_"])
    ]:
        slow[path] = quick.pop(path)
    mistakes = [told for path in quick for told in argument_mistakes(path, quick[path])]
    if not mistakes and schema is RUN:
        parts = {path: load(node["_target_"]) for path, node in quick.items()}
        mistakes = [told for fact in FACTS_OF_PARTS for told in fact(content, parts)]
    return mistakes or [told for path in slow for told in argument_mistakes(path, slow[path])]


def missing_keys(cfg: DictConfig) -> list[str]:
    """Missing required keys; nothing is resolved."""
    content: Any = OmegaConf.to_container(cfg, resolve=False)
    return sorted(key for key, value in dotted(content).items() if value == "???")


def resolved(cfg: DictConfig) -> tuple[dict[str, Any], list[str]]:
    """The plain content, and messages for unresolvable values, which are left as they are."""
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
        found += [
            f"{section and section + '.'}{key} was deleted, and {schema.what} needs it; leave it in"
            for key in legal
            if key not in node
        ]
        found += [
            f"{key} is empty; give it a value, or null" for key in legal if node.get(key) == ""
        ]
    return found


def is_part(node: Any) -> bool:
    """Whether a node has a `_target_`."""
    target = node.get("_target_") if isinstance(node, dict) else None
    return isinstance(target, str) and target != ""


def wrong_shapes(content: dict[str, Any], schema: Schema) -> list[str]:
    """Groups and entries that are not parts, or parts of the wrong kind."""
    mistakes = []
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
            rule = f"a part with a _target_, got {node!r}"
            rule = "one of its options, with a _target_" if path in schema.needed else rule
            mistakes.append(f"{path} must be {rule}")
            continue
        if "_args_" in node:
            mistakes.append(f"{path}._args_: name the arguments instead")
        later = path.partition(".")[0] in (*PARTIAL, "metric")
        if bool(node.get("_partial_", False)) != later:
            mistakes.append(f"{path}._partial_ must be {'true' if later else 'left out'}")
    return mistakes


def target_mistakes(content: dict[str, Any]) -> list[str]:
    """Targets that are not allowed, and keys that nested parts may not have."""
    mistakes = []
    for path, node in targets(content):
        target, group = node["_target_"], group_of(path)
        if not group:
            mistakes += [
                f"{path}.{key}: a part within a part has arguments alone; leave it out"
                for key in sorted({"_args_", "_partial_", "_recursive_", "_convert_"} & set(node))
            ]
        if (target or not group) and not is_allowed(str(target), group):  # else it is no part
            mistakes.append(f"{path}.{not_allowed(target, group)}")
    return mistakes
