"""The stored result and the progress of a run, from the files of its folder; errors of plans."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.config.schema import batches_of, number_asked_for, training_steps
from isotrain.console import UserError
from isotrain.runs.files import (
    DamagedError,
    read_json,
    read_result,
)
from isotrain.runs.locks import is_locked


class PlanError(UserError):
    """A study, search or sweep that cannot run; the message lists every error, one per line."""


class Stored(NamedTuple):
    """The record of a run; empty if missing or damaged."""

    result: dict[str, Any]
    damage: str = ""  # which file, and why it is invalid

    @property
    def is_finished(self) -> bool:
        """Whether the run has finished; it is not trained again."""
        return self.result.get("status") == "finished"


def stored(folder: Path) -> Stored:
    """Read and validate the `result.json` of a run folder; nothing is written.

    Raises:
        PlanError: the file cannot be read now, but may be intact.
    """
    try:
        return Stored(read_result(folder))
    except OSError as error:
        raise cannot_be_read(folder / "result.json", error) from error
    except DamagedError as error:
        return Stored({}, str(error))


def cannot_be_read(path: Path, error: OSError) -> PlanError:
    """Error for a file on failing storage."""
    return PlanError(
        f"{path} cannot be read now ({error.strerror or error}); it is left unchanged: give the "
        "same command again when it can be read"
    )


def newest_step(file: Path) -> int | None:
    """The step of the last whole record of a metrics.jsonl; None before the first."""
    lines = file.read_bytes().splitlines(keepends=True) if file.is_file() else []
    whole_lines = [line for line in lines if line.endswith(b"\n")]  # the last may be half written
    try:
        return int(json.loads(whole_lines[-1])["step"]) if whole_lines else None
    except (ValueError, TypeError, KeyError):  # damaged: whoever reads all of it says so
        return None


def steps_of(record: Mapping[str, Any]) -> int | None:
    """Optimizer steps of a whole training, at most; None if not known yet."""
    n_rows, config = (record.get("n_rows") or {}).get("train"), record.get("config")
    if not n_rows or not config:
        return None
    trainer, batch_size = config["trainer"], int(config["data"]["batch_size"])
    world = record.get("n_processes") or number_asked_for(trainer.get("devices", 1)) or 1
    return training_steps(trainer, batches_of(int(n_rows), batch_size, world))[1]


def checkpoint_step(folder: Path) -> int | None:
    """The step that an unfinished run resumes after; None where it would start anew."""
    if not (folder / "resume.ckpt").is_file():
        return None
    try:
        return int(read_json(folder / "resume.json")["step"])
    except (OSError, ValueError, TypeError, KeyError):  # killed between the two files
        return None


def is_owned(folder: Path) -> bool:
    """Whether a process is running the run of a folder, by its lock."""
    return is_locked(folder / ".lock")
