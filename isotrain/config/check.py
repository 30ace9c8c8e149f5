"""The check of a run's configuration: its keys at once, then its parts, which are imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from isotrain.config.rules import FACTS, FACTS_OF_PARTS
from isotrain.config.schema import BOUNDS, SECTIONS
from isotrain.config.signatures import argument_mistakes, load
from isotrain.config.targets import is_of_library, targets
from isotrain.config.validate import (
    is_whole,
    missing_keys,
    number_mistakes,
    resolved,
    secret_mistakes,
    target_mistakes,
    with_defaults,
    wrong_keys,
    wrong_shapes,
)

ALONE = (
    "geometry",
    "transforms",
    "metrics",
    "objectives",
    "model",
)  # folders that import torch alone
TORCH_ALONE = tuple(f"isotrain.{name}." for name in ALONE)


def mistakes_in(cfg: DictConfig) -> list[str]:
    """What the keys of a run show, all at once; nothing is imported.

    A mistake states the rule, what was given, and the fix.
    """
    if missing := missing_keys(cfg):
        return [f"{key} has no value; set {key}=..." for key in missing]
    content, mistakes = resolved(cfg)
    mistakes += wrong_keys(content, SECTIONS, "a run")
    mistakes += secret_mistakes(cfg)
    content = with_defaults(content, SECTIONS)  # a key that was deleted hides no other mistake
    mistakes += wrong_shapes(content)
    mistakes += target_mistakes(content)
    if is_whole(content, SECTIONS):  # the facts read its parts
        mistakes += number_mistakes(content, BOUNDS)
        mistakes += [sentence for fact in FACTS for sentence in fact(content)]
    return mistakes


def part_mistakes(cfg: DictConfig) -> list[str]:
    """What the classes of a run's parts show; only after `mistakes_in`, for they are imported.

    The quickest imports come first, and a stage that has mistakes is the last: parts of torch
    alone, the others of isotrain and of the user, libraries (Lightning's Trainer takes seconds).
    """
    content, _ = resolved(cfg)
    return (
        argument_mistakes_of(content, _is_of_torch_alone)
        or argument_mistakes_of(content, _is_other)
        or _facts_of_parts(content)
        or argument_mistakes_of(content, is_of_library)
    )


def argument_mistakes_of(
    content: Mapping[str, Any], is_wanted: Callable[[str], bool] = lambda target: True
) -> list[str]:
    """Keys and values that the wanted ones of the targets do not take."""
    return [
        mistake
        for path, node in targets(content)
        if is_wanted(node["_target_"])
        for mistake in argument_mistakes(path, node)
    ]


def _is_of_torch_alone(target: str) -> bool:
    return target.startswith(TORCH_ALONE)


def _is_other(target: str) -> bool:
    return not target.startswith(TORCH_ALONE) and not is_of_library(target)


def _facts_of_parts(content: dict[str, Any]) -> list[str]:
    parts = {
        path: object if is_of_library(node["_target_"]) else load(node["_target_"])
        for path, node in targets(content)
    }
    return [sentence for fact in FACTS_OF_PARTS for sentence in fact(content, parts)]
