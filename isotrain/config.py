"""The typed root of a run's configuration, and what a configuration may name.

Imports no torch: `--help` and every refusal of `check` come before anything heavy.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

ALLOWED_TARGETS = (  # besides what a module of isotrain defines; whole names, as patterns
    r"torch\.optim\.[A-Z]\w*",
    r"transformers\.get_scheduler",
    r"pytorch_lightning\.Trainer",
    r"pytorch_lightning\.loggers\.[A-Z]\w*",
)
SUPPLIED_TO_TRAINER = (
    "callbacks",
    "default_root_dir",
    "enable_checkpointing",
    "enable_model_summary",
    "enable_progress_bar",
    "logger",
    "num_sanity_val_steps",
    "use_distributed_sampler",
)
NOT_CONTENT = ("logger", "output_dir", "rerun")  # two runs may differ in these


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
    head_lr_factor: float = 1.0
    prefill_batches: int = 8


@dataclass
class MonitorConfig:
    """What the isotropy monitor takes."""

    max_rows: int = 2048
    headline: str | None = None


@dataclass
class RunConfig:
    """Keys of a run; a group's own keys are those of its target's signature."""

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


def compose_run(overrides: Sequence[str]) -> DictConfig:
    """The configuration of a run from Python, as the command line would compose it."""
    register()
    folder = conf_folder()
    package = folder.removeprefix("pkg://")
    with (
        initialize_config_dir(folder, version_base="1.3")
        if package == folder
        else initialize_config_module(package, version_base="1.3")
    ):
        return compose("train", list(overrides))


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


def is_allowed(target: str) -> bool:
    """Whether a configuration may name `target`.

    Either it matches `ALLOWED_TARGETS`, or it is a function or class that a module of isotrain,
    or of a package in the environment's `ISOTRAIN_ALLOW` (comma-separated), defines itself: a
    name that is only imported there, such as `isotrain.run.os.system`, is not. A configuration
    file can never widen the list.

    >>> is_allowed("isotrain.poolers.ClsPooling"), is_allowed("isotrain.run.os.getcwd")
    (True, False)
    """
    if any(re.fullmatch(pattern, target) for pattern in ALLOWED_TARGETS):
        return True
    own = ["isotrain", *os.environ.get("ISOTRAIN_ALLOW", "").replace(" ", "").split(",")]
    module, _, name = target.rpartition(".")
    if module.partition(".")[0] not in filter(None, own):
        return False
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return False
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return False
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    defined = (ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, defined) and node.name == name for node in tree.body)


def check(cfg: DictConfig) -> None:
    """Refuse a configuration that cannot run, every mistake at once.

    Raises:
        ValueError: a missing value, a target that is not allowed, no or a double site, a headline
            that is not measured, nothing to fit the layer on, or `rows=no_special` where it
            would change nothing.
    """
    if missing := OmegaConf.missing_keys(cfg):
        raise ValueError("\n".join(f"{key} has no value; set {key}=..." for key in sorted(missing)))
    content = plain(cfg)
    mistakes = _unknown_keys(content)
    mistakes += [
        f"{path}._target_={target} is not allowed: a target is a function or class defined in "
        "isotrain, or in a package of yours that ISOTRAIN_ALLOW=<package> names, or an optimizer "
        "of torch, or a logger of pytorch_lightning (a package of yours must be importable: "
        "install it, or set PYTHONPATH)"
        for path, target in targets(content)
        if not is_allowed(target)
    ]
    site = content["site"]
    if not site or len(set(site)) != len(site):
        mistakes.append(f"site must name each place once and at least one, got {site}")
    if odd := [s for s in site if not re.fullmatch(r"pooled|tokens|layer_[1-9]\d*", s)]:
        mistakes.append(f"site must be pooled, tokens or layer_k (k from 1), got {', '.join(odd)}")
    if content["rows"] == "no_special":
        if set(site) <= {"pooled"}:
            mistakes.append(
                f"rows=no_special chooses the rows of a token site, and site={site} has none; add "
                "tokens or layer_k, or use rows=all"
            )
        elif set(site) <= {"pooled", "tokens"} and _pools_cls(content):
            mistakes.append(
                "rows=no_special leaves CLS untouched, so with pooling=cls a layer at tokens "
                "would do nothing; use pooling=mean or spans, or rows=all"
            )
    headline = content["monitor"]["headline"]
    if headline is not None and headline not in content["metric"]:
        mistakes.append(
            f"monitor.headline={headline} is not measured; choose one of "
            f"{', '.join(content['metric'])}, or add it to metric=[...]"
        )
    mistakes += _trainer_mistakes(content["trainer"], content["optimizer"])
    mistakes += [
        f"data.{key} must be at least 1, got {content['data'][key]}"
        for key in ("batch_size", "eval_batch_size")
        if content["data"][key] < 1
    ]
    if content["training"]["prefill_batches"] < 1:
        mistakes.append("training.prefill_batches must be at least 1: the layer is fitted on them")
    if mistakes:
        raise ValueError("\n".join(mistakes))


def _unknown_keys(content: dict[str, Any]) -> list[str]:
    """Keys that `+key=value` slipped past the schema."""
    sections = {"": RunConfig, "data": DataConfig, "training": TrainingConfig}
    found = []
    for section, schema in (sections | {"monitor": MonitorConfig}).items():
        node, legal = content[section] if section else content, [f.name for f in fields(schema)]
        for key in sorted(set(node) - set(legal)):
            near = get_close_matches(key, legal, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(legal)}"
            found.append(f"{section or 'a run'} has no key {key}; {hint}")
    return found


def _trainer_mistakes(trainer: dict[str, Any], optimizer: dict[str, Any]) -> list[str]:
    mistakes = [
        f"trainer.{key} is set by isotrain itself; leave it out"
        for key in SUPPLIED_TO_TRAINER
        if key in trainer
    ]
    if trainer.get("devices", 1) not in (1, "1") or trainer.get("num_nodes", 1) != 1:
        mistakes.append("trainer.devices must be 1: several processes are not supported yet")
    if str(trainer.get("precision")).startswith("16") and optimizer.get("fused"):
        mistakes.append(
            "trainer.precision=16-mixed cannot clip gradients with a fused optimizer; add "
            "optimizer.fused=false, or use bf16-mixed"
        )
    return mistakes


def _pools_cls(content: dict[str, Any]) -> bool:
    return bool(content["pooling"]["_target_"].endswith(".ClsPooling"))
