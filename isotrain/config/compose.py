"""A run's configuration: composed, made plain, hashed, given a folder, written for a process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from isotrain.config.reading import class_constant
from isotrain.config.schema import NOT_CONTENT, RunConfig, register


def conf_folder() -> str:
    """Where the config tree is: beside the package in a checkout, inside it when installed."""
    sibling = Path(__file__).resolve().parents[2] / "conf"
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
    """Ten hex digits that name what a run computes: of every key but those in `NOT_CONTENT`."""
    content = plain(cfg)
    for key in NOT_CONTENT:
        section, _, leaf = key.rpartition(".")
        (content[section] if section else content).pop(leaf)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def run_folder(cfg: DictConfig, arm: str) -> Path:
    """`<output_dir>/<task>/<arm>-<content hash>`, whether it exists or not.

    `threads` must be a number: results depend on it.
    """
    assert cfg.threads is not None
    target = str(cfg.task["_target_"])
    task_name = class_constant(target, "name") or target.rpartition(".")[2].lower()
    return Path(str(cfg.output_dir)) / task_name / f"{arm}-{content_hash(cfg)}"


def write_job(cfg: DictConfig, arm: str, path: Path) -> None:
    """Write what `isotrain job PATH` runs."""
    path.write_text(job_text(cfg, arm), encoding="utf-8")


def job_text(cfg: DictConfig, arm: str) -> str:
    """Configuration and arm as one text, with references to the environment kept."""
    keys = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
    return json.dumps({"arm": arm, "config": keys}, indent=2)


def read_job(path: Path) -> tuple[DictConfig, str]:
    """The configuration and the arm that `write_job` wrote."""
    return parse_job(path.read_text(encoding="utf-8"))


def parse_job(text: str) -> tuple[DictConfig, str]:
    """The configuration and the arm of `job_text`."""
    job = json.loads(text)
    cfg = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.create(job["config"]))
    assert isinstance(cfg, DictConfig)
    return cfg, job["arm"]
