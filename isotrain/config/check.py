"""The check of a configuration: its keys at once, then its parts, which are imported."""

from __future__ import annotations

from omegaconf import DictConfig

from isotrain.config.rules import FACTS, FACTS_OF_PARTS
from isotrain.config.schema import RUN, Schema
from isotrain.config.signatures import argument_mistakes, load
from isotrain.config.targets import is_of_library, targets
from isotrain.config.validate import (
    is_whole,
    missing_keys,
    number_mistakes,
    resolved,
    secret_mistakes,
    target_mistakes,
    wrong_keys,
    wrong_shapes,
)


def mistakes_in(cfg: DictConfig, schema: Schema = RUN) -> list[str]:
    """Every mistake in the keys of a run (or an analysis); nothing is imported."""
    if missing := missing_keys(cfg):
        return [f"{key} has no value; set {key}=..." for key in missing]
    content, mistakes = resolved(cfg)
    mistakes += wrong_keys(content, schema)
    mistakes += secret_mistakes(cfg)
    mistakes += wrong_shapes(content, schema)
    mistakes += target_mistakes(content)
    if is_whole(content, schema):  # the facts read its parts
        mistakes += number_mistakes(content, schema.bounds)
        if schema is RUN:
            mistakes += [sentence for fact in FACTS for sentence in fact(content)]
    return mistakes


def part_mistakes(cfg: DictConfig, schema: Schema = RUN) -> list[str]:
    """Mistakes of the imported parts, after `mistakes_in`; those that import Lightning last."""
    content, _ = resolved(cfg)
    quick = {p: node for p, node in targets(content) if not _is_slow(node["_target_"])}
    mistakes = [sentence for p, node in quick.items() for sentence in argument_mistakes(p, node)]
    if not mistakes and schema is RUN:
        parts = {path: load(node["_target_"]) for path, node in quick.items()}
        mistakes = [sentence for fact in FACTS_OF_PARTS for sentence in fact(content, parts)]
    return mistakes or [
        sentence
        for path, node in targets(content)
        if path not in quick
        for sentence in argument_mistakes(path, node)
    ]


def _is_slow(target: str) -> bool:
    return is_of_library(target) or target.startswith("isotrain.training.loggers.")
