"""The typed root of an analysis's configuration: its keys and their legal values."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omegaconf import DictConfig

from isotrain.config.compose import plain
from isotrain.config.schema import Schema, number

NOT_CONTENT = ("output_dir", "rerun", "analysis.published")  # keys that change no result


class Device(StrEnum):
    """Device of the encoder."""

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
    seed: int = number(0, ge=0, lt=2**32)
    threads: int | None = number(None, ge=1)
    device: Device = Device.auto
    batch_size: int = number(32, ge=1)
    max_length: int = number(128, ge=3)
    output_dir: str = "runs"
    rerun: bool = False


ANALYSIS = Schema("analysis_schema", "an analysis", {"": AnalysisConfig})


def analysis_hash(cfg: DictConfig) -> str:
    """Hash of an analysis, ten hex digits: of every key except `NOT_CONTENT`."""
    content = plain(cfg)
    for key in NOT_CONTENT:
        section, _, leaf = key.rpartition(".")
        (content[section] if section else content).pop(leaf, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
