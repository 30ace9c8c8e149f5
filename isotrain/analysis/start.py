"""The finished run that an analysis measures, looked for before anything is loaded: no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.encoders.finished_run import start_file
from isotrain.results import read_result


def with_encoder_of_run(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """`cfg` with the encoder of the run in `from_run`, where the command names no encoder.

    A run that is not there is left for `start_of` to tell.
    """
    keys = [text.lstrip("+~").partition("=")[0] for text in overrides]
    given = any(key.partition(".")[0] == "encoder" for key in keys)
    if cfg.from_run is None or given:
        return cfg
    if encoder := result_of(cfg.from_run).get("config", {}).get("encoder"):
        with open_dict(cfg):
            cfg.encoder = OmegaConf.create(encoder)
    return cfg


def start_of(cfg: DictConfig) -> Path | None:
    """The weights that the run of `from_run` ended with; None where none is given.

    Raises:
        ValueError: there is no such run, or it cannot be measured.
    """
    if cfg.from_run is None:
        return None
    try:
        return start_file(OmegaConf.create({"init_from": cfg.from_run, "encoder": cfg.encoder}))
    except ValueError as error:
        raise ValueError(str(error).replace("init_from", "from_run")) from error


def result_of(from_run: str) -> dict[str, Any]:
    """The record of a run that is named by its folder or a file in it; empty where none is."""
    given = Path(from_run).expanduser()
    return read_result(given if given.is_dir() else given.parent)
