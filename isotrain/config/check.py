"""Validate a configuration: first its keys, then its imported parts."""

import re
from dataclasses import fields
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError
from pydantic import Field, TypeAdapter

from isotrain.arguments import adapter_of, violation
from isotrain.config.analysis import ANALYSIS
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


def _number(**limits: Any) -> TypeAdapter[Any]:
    """Validates a number within limits, or null."""
    return adapter_of(Annotated[float, Field(**limits)] | None)


OF_ANY = {"seed": _number(ge=0, lt=2**32), "threads": _number(ge=1)}
BOUNDS = {  # of the numbers of a schema; those of a part are in its annotations
    ANALYSIS.name: {**OF_ANY, "batch_size": _number(ge=1), "max_length": _number(ge=3)},
    RUN.name: {
        **OF_ANY,
        "data.fraction": _number(gt=0, le=1),
        "data.label_skew": _number(ge=0, lt=1),  # the last class needs examples
        "data.label_noise": _number(ge=0, le=1),
        "data.holdout": _number(gt=0, lt=1),
        **{f"data.{key}": _number(ge=1) for key in ("n_train", "n_dev", "n_test")},
        **{f"data.{key}": _number(ge=1) for key in ("batch_size", "eval_batch_size")},
        **{f"training.{key}": _number(ge=1) for key in ("prefill_batches", "patience")},
        "training.refit_rows": _number(ge=2),
        "training.warmup_fraction": _number(ge=0, le=1),
        "training.head_lr_factor": _number(ge=0),
        "training.layer_decay": _number(gt=0, le=1),
        "training.reinit_blocks": _number(ge=0),
        "monitor.max_rows": _number(ge=2),
        **{f"monitor.{key}": _number(ge=0) for key in ("every_steps", "map_rows")},
        **{f"checkpoint.{key}": _number(ge=0) for key in ("every_steps", "every_s")},
        "trainer.accumulate_grad_batches": _number(ge=1),
        **{
            f"trainer.{key}": _number(gt=0) for key in ("limit_train_batches", "val_check_interval")
        },
    },
}


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
        values = dotted(content)
        mistakes += [
            f"{key} {problem}"
            for key, bounds in BOUNDS[schema.name].items()
            if (problem := violation(bounds, values.get(key)))
        ]
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
    return found


def is_part(node: Any) -> bool:
    """Whether a node has a `_target_`."""
    target = node.get("_target_") if isinstance(node, dict) else None
    return isinstance(target, str) and target != ""


def wrong_shapes(content: dict[str, Any], schema: Schema) -> list[str]:
    """Groups and entries of groups that are no part, and names of others' groups."""
    parts: dict[str, Any] = {group: content.get(group) for group in schema.needed}
    for group in SEVERAL:
        entries = content.get(group) or {}
        if not isinstance(entries, dict):
            return [f"{group} must be a list of its options, {group}=[...]"]
        parts |= {f"{group}.{name}": node for name, node in entries.items()}
    found = []
    for path, node in parts.items():
        if path.startswith("metric."):
            path, node = (
                f"{path}.function",
                node.get("function") if isinstance(node, dict) else None,
            )
        if not is_part(node):
            found.append(f"{path} must be one of its options, with a _target_, got {node!r}")
    return found


def target_mistakes(content: dict[str, Any]) -> list[str]:
    """Targets that are not allowed."""
    return [
        f"{path}.{not_allowed(node['_target_'], group_of(path))}"
        for path, node in targets(content)
        if not is_allowed(str(node["_target_"]), group_of(path))
    ]
