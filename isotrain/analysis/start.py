"""The finished run that an analysis measures, looked for before anything is loaded: no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.config.compose import key_of
from isotrain.runs.files import read_result


def with_encoder_of_run(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """`cfg` with the encoder of the run in `from_run`, where the command names no encoder.

    A run that is not there is left for `start_file` to tell.
    """
    given = any(key_of(text).partition(".")[0] == "encoder" for text in overrides)
    if cfg.from_run is None or given:
        return cfg
    if encoder := result_of(cfg.from_run).get("config", {}).get("encoder"):
        with open_dict(cfg):
            cfg.encoder = OmegaConf.create(encoder)
    return cfg


def result_of(from_run: str) -> dict[str, Any]:
    """The record of a run that is named by its folder or a file in it; empty where none is."""
    given = Path(from_run).expanduser()
    return read_result(given if given.is_dir() else given.parent)
