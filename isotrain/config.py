"""The typed root of a run's configuration, and what a configuration may name.

Imports no torch: `--help` and every refusal come before anything heavy.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

ALLOWED_TARGETS = (
    "isotrain.",
    "torch.optim.",
    "transformers.get_scheduler",
    "pytorch_lightning.Trainer",
    "pytorch_lightning.loggers.",
    "pytorch_lightning.callbacks.",
)
NOT_CONTENT = ("logger", "output_dir", "rerun", "checkpoint")  # two runs may differ in these


class TokenRows(StrEnum):
    """Rows of a token site."""

    all = "all"
    no_special = "no_special"


class Batching(StrEnum):
    """How training rows are grouped."""

    length = "length"
    random = "random"


@dataclass
class DataConfig:
    """Sizes and order of batches."""

    batch_size: int = 32
    eval_batch_size: int = 64
    batching: Batching = Batching.length


@dataclass
class TrainingConfig:
    """What the training module takes beside the optimizer."""

    warmup_fraction: float = 0.1
    prefill_batches: int = 8


@dataclass
class MonitorConfig:
    """What the isotropy monitor takes."""

    max_rows: int = 2048
    headline: str = "isoscore"


@dataclass
class RunConfig:
    """Keys of a run; each group is checked against the signature of its target."""

    task: Any = None
    encoder: Any = None
    pooling: Any = None
    isotropy: Any = None
    freezing: Any = None
    objective: Any = field(default_factory=dict)
    metric: Any = field(default_factory=dict)
    optimizer: Any = None
    schedule: Any = None
    trainer: Any = None
    logger: Any = field(default_factory=dict)
    source: Any = None
    experiment: Any = None
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    seed: int = 0
    site: list[str] = field(default_factory=lambda: ["pooled"])
    rows: TokenRows = TokenRows.all
    threads: int | None = None
    output_dir: str = "runs"
    rerun: bool = False
    checkpoint: bool = True


def register() -> None:
    """Make the schema known to Hydra."""
    ConfigStore.instance().store(name="run_schema", node=RunConfig)


def conf_folder() -> str:
    """Where the config tree is: beside the package in a checkout, inside it when installed."""
    sibling = Path(__file__).resolve().parent.parent / "conf"
    return str(sibling) if (sibling / "train.yaml").is_file() else "pkg://isotrain.conf"


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration as plain containers."""
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def content_hash(cfg: DictConfig) -> str:
    """Ten hex digits that name what a run computes: every key but those of logging and place."""
    content = {key: value for key, value in plain(cfg).items() if key not in NOT_CONTENT}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def targets(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each `_target_` of a plain configuration with the path of its node."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield path, node["_target_"]
        for key, value in node.items():
            yield from targets(value, f"{path}.{key}" if path else key)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from targets(value, f"{path}[{number}]")


def allowed_targets() -> tuple[str, ...]:
    """What a `_target_` may start with: `ALLOWED_TARGETS` and the packages in `ISOTRAIN_ALLOW`.

    A configuration file can never widen the list; the person at the shell can, with
    `ISOTRAIN_ALLOW=mypackage` (comma-separated).
    """
    own = [name.strip() for name in os.environ.get("ISOTRAIN_ALLOW", "").split(",")]
    return (*ALLOWED_TARGETS, *(f"{name.rstrip('.')}." for name in own if name))


def check(cfg: DictConfig) -> None:
    """Refuse a configuration that cannot run, every mistake at once.

    Raises:
        ValueError: a target outside `allowed_targets()`, a missing value, no or a double site, or
            `rows=no_special` where it would change nothing.
    """
    content = plain(cfg)
    mistakes = [
        f"{path}._target_={target} is not allowed; a target starts with one of "
        f"{', '.join(allowed_targets())} (a package of yours: ISOTRAIN_ALLOW=<its name>)"
        for path, target in targets(content)
        if not target.startswith(allowed_targets())
    ]
    site = content["site"]
    if not site or len(set(site)) != len(site):
        mistakes.append(f"site must name each place once and at least one, got {site}")
    if content["rows"] == "no_special" and set(site) <= {"pooled"}:
        mistakes.append(
            f"rows=no_special chooses the rows of a token site, and site={site} has none; add "
            "tokens or layer_k, or use rows=all"
        )
    if content["rows"] == "no_special" and content["pooling"]["_target_"].endswith("ClsPooling"):
        mistakes.append(
            "rows=no_special leaves CLS untouched, so with pooling=cls the layer would do "
            "nothing; use pooling=mean or spans, or rows=all"
        )
    if mistakes:
        raise ValueError("\n".join(mistakes))
