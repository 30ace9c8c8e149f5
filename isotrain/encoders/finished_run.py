"""The weights of a finished run, and what speaks against starting from them. Imports no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from isotrain.config.rules import NO_ADAPTERS
from isotrain.runs.files import read_result
from isotrain.runs.secrets import redacted

WANTED = "give the folder of a finished run, runs/<task>/<arm>-<hash>, or its last.ckpt"


def start_file(run: str | None, encoder: DictConfig, key: str = "init_from") -> Path | None:
    """The checkpoint of a run that is named, under `key`, by its folder or a file in it.

    None where none is named: what starts has the weights of `encoder` as they are.

    Raises:
        ValueError: there is no such run, it is not finished, it kept no weights, it trained
            adapters, or its encoder has other keys than `encoder`.
    """
    if run is None:
        return None
    given = Path(run).expanduser()
    if not given.exists():
        raise ValueError(f"{key}={run} does not exist; {WANTED}")
    folder = given if given.is_dir() else given.parent
    result = read_result(folder)
    if not result:
        raise ValueError(f"{key}={run}: there is no result.json in {folder}; {WANTED}")
    if "checkpoint" not in result.get("config", {}):
        raise ValueError(f"{key}={run}: {folder} is not that of a training run; {WANTED}")
    if result["status"] != "finished":
        raise ValueError(
            f"{key}={run}: that run is {result['status']}, not finished; give its command again "
            "until it ends"
        )
    file = folder / "last.ckpt" if given.is_dir() else given
    if not file.is_file():
        reason = "" if result["config"]["checkpoint"]["final"] else " (checkpoint.final=false)"
        raise ValueError(
            f"{key}={run}: that run has no last.ckpt{reason}; give its command with "
            "checkpoint.final=true rerun=true"
        )
    if result["config"].get("peft", {}).get("_target_", NO_ADAPTERS) != NO_ADAPTERS:
        raise ValueError(
            f"{key}={run}: that run trained adapters (peft), which stand beside the weights of its "
            "encoder and are not merged into them; start from a run with peft=none"
        )
    theirs = result["config"]["encoder"]
    own = redacted(OmegaConf.to_container(encoder, resolve=True))
    if theirs != own:
        keys = [k for k in {**theirs, **own} if theirs.get(k) != own.get(k)]
        differ = ", ".join(f"{k}={theirs.get(k)} there and {own.get(k)} here" for k in keys)
        raise ValueError(
            f"{key}={run}: that run trained another encoder (encoder.{differ}); use the same "
            "encoder keys"
        )
    return file


def sha256_of(file: Path) -> str:
    """Hex digits of a file's SHA-256."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
