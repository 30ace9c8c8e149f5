"""The typed root of an analysis's configuration, and what it must fulfil."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

from isotrain.arguments import Bounds
from isotrain.config.check import argument_mistakes_of
from isotrain.config.compose import plain
from isotrain.config.schema import BOUNDS_OF_ANY
from isotrain.config.validate import (
    is_part,
    missing_keys,
    number_mistakes,
    resolved,
    secret_mistakes,
    target_mistakes,
    with_defaults,
    wrong_keys,
)

PARTS = ("analysis", "encoder", "source")
BOUNDS = {**BOUNDS_OF_ANY, "batch_size": Bounds(1), "max_length": Bounds(3)}
NOT_CONTENT = ("check", "output_dir", "rerun", "analysis.published")  # keys that change no number


class Check(StrEnum):
    """What an analysis is compared with."""

    published = "published"


class Device(StrEnum):
    """Where the encoder is."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


@dataclass
class AnalysisConfig:
    """Keys of an analysis; a group's own keys are those of its target's signature."""

    analysis: Any = None
    encoder: Any = None
    source: Any = None
    from_run: str | None = None
    check: Check | None = None
    seed: int = 0
    threads: int | None = None
    device: Device = Device.auto
    batch_size: int = 32
    max_length: int = 128
    output_dir: str = "runs"
    rerun: bool = False


SECTIONS = {"": AnalysisConfig}


def register_analysis() -> None:
    """Make the schema known to Hydra."""
    ConfigStore.instance().store(name="analysis_schema", node=AnalysisConfig)


def mistakes_in_analysis(cfg: DictConfig) -> list[str]:
    """What the keys of an analysis show, all at once; nothing is imported."""
    if missing := missing_keys(cfg):
        return [f"{key} has no value; set {key}=..." for key in missing]
    content, mistakes = resolved(cfg)
    mistakes += wrong_keys(content, SECTIONS, "an analysis")
    mistakes += secret_mistakes(cfg)
    content = with_defaults(content, SECTIONS)
    mistakes += [
        f"{group} must be one of its options, with a _target_"
        for group in PARTS
        if not is_part(content.get(group))
    ]
    return mistakes + target_mistakes(content) + number_mistakes(content, BOUNDS)


def part_mistakes_in_analysis(cfg: DictConfig) -> list[str]:
    """Keys and values that the parts of an analysis do not take; they are imported."""
    content, _ = resolved(cfg)
    return argument_mistakes_of(content)


def analysis_hash(cfg: DictConfig) -> str:
    """Ten hex digits that name what an analysis computes: of every key but `NOT_CONTENT`."""
    content = plain(cfg)
    for key in NOT_CONTENT:
        section, _, leaf = key.rpartition(".")
        (content[section] if section else content).pop(leaf, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
