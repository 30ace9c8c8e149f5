"""The encoder that an analysis of a finished run measures. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.encoders.finished_run import start_file
from isotrain.results import read_result


def with_encoder_of_run(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """`cfg` with the encoder of the run in `from_run`, where the command names no encoder.

    A run that is not there is left for `start_of` to tell.
    """
    if cfg.from_run is None or any(text.startswith("encoder") for text in overrides):
        return cfg
    folder = Path(str(cfg.from_run)).expanduser()
    result = read_result(folder if folder.is_dir() else folder.parent)
    if encoder := result.get("config", {}).get("encoder"):
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
