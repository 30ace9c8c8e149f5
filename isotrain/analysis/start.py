"""Inputs of an analysis outside its configuration, resolved without torch."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.config.compose import key_of
from isotrain.config.parts import check_recorded
from isotrain.runs.files import read_result, sha256_of

DIGITS = 12


def with_encoder_of_run(cfg: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """`cfg` with the encoder of the run `from_run`, if the command names no encoder."""
    if any(key_of(text).partition(".")[0] == "encoder" for text in overrides):
        return cfg
    if encoder := result_of(cfg.from_run).get("config", {}).get("encoder"):
        check_recorded({"encoder": encoder})
        with open_dict(cfg):
            cfg.encoder = OmegaConf.create(encoder)
    return cfg


def result_of(from_run: str) -> dict[str, Any]:
    """The record of a run given by its folder or a file in it; empty without one."""
    given = Path(from_run).expanduser()
    return read_result(given if given.is_dir() else given.parent)


def given_files(node: Any) -> dict[str, str]:
    """Twelve hex digits of the SHA-256 of each file that a value of `node` names, by its path.

    Of a folder, such as that of an encoder, every file in it counts, those of its folders do not.

    >>> given_files({"encoder": {"name": "google-bert/bert-base-uncased", "width": 3}})
    {}
    """
    if isinstance(node, str):
        files = _files(Path(node).expanduser()) if node else []  # empty: the working folder
        return {str(file): sha256_of(file)[:DIGITS] for file in files}
    parts = node.values() if isinstance(node, Mapping) else node
    found: dict[str, str] = {}
    for part in parts if isinstance(parts, Iterable) else ():
        found |= given_files(part)
    return found


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.is_file())
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # a text that is no path
        return []
