"""How far a run is, from the files of its folder alone: nothing is written and nobody is asked."""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from isotrain.config.processes import number_asked_for
from isotrain.config.steps import batches_of, training_steps
from isotrain.jobs.locks import is_locked

ENDED = "isotrain: exit code "  # the last line of a failed run's log
LATEST_BYTES = 2**18  # of a metrics.jsonl: its newest rows


def newest_step(file: Path) -> int | None:
    """The step of the last whole row of a metrics.jsonl, from its last quarter of a megabyte."""
    try:
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - LATEST_BYTES))
            found = re.findall(rb'^\{"step": (\d+).*\n', lines.read(), re.MULTILINE)
    except OSError:  # nothing is logged yet
        return None
    return int(found[-1]) if found else None


def n_steps(
    trainer: Mapping[str, Any], n_rows: int, batch_size: int, n_processes: int | None = None
) -> int | None:
    """Optimizer steps of a whole training of `n_rows` rows, at most; None without a limit.

    `n_processes` None: as many as `devices` asks for.

    >>> n_steps({"max_epochs": 2, "max_steps": -1}, n_rows=100, batch_size=32)
    8
    """
    world = n_processes or number_asked_for(trainer.get("devices", 1)) or 1
    _, steps = training_steps(trainer, batches_of(n_rows, batch_size, world))
    return None if math.isinf(steps) else int(steps)


def steps_of(cfg: DictConfig, record: Mapping[str, Any]) -> int | None:
    """`n_steps` of a run; None, too, where its record does not have its rows yet."""
    n_rows = (record.get("n_rows") or {}).get("train")
    if not n_rows:
        return None
    return n_steps(cfg.trainer, int(n_rows), int(cfg.data.batch_size), record.get("n_processes"))


def checkpoint_step(file: Path) -> int | None:
    """The step of a resume.ckpt; None where there is none, or none that can be read.

    The file is a zip whose `data.pkl` has everything but the tensors; it is read without torch and
    without running anything that it names: every class in it stands for nothing.
    """
    try:
        with zipfile.ZipFile(file) as parts:
            name = next(name for name in parts.namelist() if name.endswith("/data.pkl"))
            with parts.open(name) as pickled:
                return int(_Inert(pickled).load()["global_step"])
    except Exception:  # whatever a damaged file makes a reader raise; the run itself will tell
        return None


def is_owned(folder: Path) -> bool:
    """Whether a process is at the run of a folder, by its lock."""
    return is_locked(folder / ".lock")


def at_a_time(lock: Path) -> int | None:
    """Runs at a time of the call that holds the lock of a study, or held it last; None if unknown.

    >>> at_a_time(Path("nowhere"))
    """
    try:
        return int(lock.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class _Nothing:
    """Stands for an object that is not made."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class _Inert(pickle.Unpickler):
    """Builds plain containers and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        return OrderedDict if (module, name) == ("collections", "OrderedDict") else _Nothing

    def persistent_load(self, pid: Any) -> None:
        return None
