"""Assign CUDA devices to the worker processes of sweeps. Imports nothing heavy.

A worker locks a slot on its device, a file in the system's temporary folder, until it ends: all
workers of one user on one machine see which slots are taken. Each Slurm job has separate devices
and locks.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from isotrain.config.schema import number_asked_for
from isotrain.runs.locks import take

VISIBLE = "CUDA_VISIBLE_DEVICES"
TIMEOUT_S = 20.0  # of nvidia-smi, which waits for the driver to start
_claims: list[
    tuple[str | None, int]
] = []  # the variable's previous value, and the lock; at most one


def cuda_devices() -> list[str]:
    """The CUDA devices available to this process, named as in `CUDA_VISIBLE_DEVICES`.

    Those of the variable if it is set, else those listed by `nvidia-smi -L`: MIG slices by name,
    whole GPUs by number. Empty without `nvidia-smi`.
    """
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        stop = next((k for k, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:stop]  # as CUDA reads it
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    slices = re.findall(r"UUID: (MIG-[^)]+)", listing)
    return slices or re.findall(r"^GPU (\d+):", listing, re.MULTILINE)


def claim(cfg: DictConfig) -> None:
    """Assign the least busy CUDA device to this process, before CUDA starts.

    The worker of a sweep calls it before each run. With several devices, the first run on one
    device claims it through `CUDA_VISIBLE_DEVICES`, until the process ends. Nothing is claimed for
    a run that uses several devices or names them.

    Raises:
        OSError: the system's temporary folder is not writable.
    """
    if _claims or not _takes_any(cfg.trainer) or len(devices := cuda_devices()) < 2:
        return
    previous = os.environ.get(VISIBLE)
    os.environ[VISIBLE], lock = _take(devices)
    _claims.append((previous, lock))


def unclaimed() -> dict[str, str]:
    """The environment without the effect of `claim`, for a run on several devices."""
    environment = dict(os.environ)
    for previous, _ in _claims:
        del environment[VISIBLE]
        environment |= {} if previous is None else {VISIBLE: previous}
    return environment


def _takes_any(trainer: Mapping[str, Any]) -> bool:
    """Whether a run uses one CUDA device, and any will do."""
    devices = trainer.get("devices", 1)
    is_named = isinstance(devices, Sequence) and not isinstance(devices, str)
    may_use = trainer.get("accelerator", "auto") in ("auto", "gpu", "cuda")
    return may_use and not is_named and number_asked_for(devices) == 1


def _take(choices: Sequence[str]) -> tuple[str, int]:
    """The first device with the lowest free slot, and the lock of that slot."""
    user_folder = Path(tempfile.gettempdir()) / f"isotrain-{os.getuid()}"
    user_folder.mkdir(mode=0o700, exist_ok=True)
    job = os.environ.get("SLURM_JOB_ID", "")
    folder = user_folder / f"devices{job and '-'}{job}"
    folder.mkdir(exist_ok=True)
    for slot in count():
        for device in choices:
            name = re.sub(r"[^A-Za-z0-9-]", "_", device)
            if (lock := take(folder / f"{name}.{slot}")) is not None:
                return device, lock
    raise AssertionError  # slots are unlimited
