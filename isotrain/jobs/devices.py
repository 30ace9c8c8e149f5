"""Assign CUDA devices to concurrent jobs. Imports nothing heavy.

A job locks a slot on its device, a file in the system's temporary folder, until its process ends:
concurrent calls of one user on one machine see which slots are taken. Each Slurm job has separate
devices and locks.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from isotrain.config.schema import number_asked_for
from isotrain.runs.locks import take

VISIBLE = "CUDA_VISIBLE_DEVICES"
TIMEOUT_S = 20.0  # of nvidia-smi, which waits for the driver to start


def cuda_devices() -> list[str]:
    """The CUDA devices that this process may use, as `CUDA_VISIBLE_DEVICES` names them.

    Those of the variable if it is set, else those listed by `nvidia-smi -L`: MIG slices by name,
    whole GPUs by number. Empty without `nvidia-smi`.
    """
    given = os.environ.get(VISIBLE)
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        stop = next((k for k, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:stop]  # as CUDA reads it
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    slices = re.findall(r"UUID: (MIG-[^)]+)", listed)
    return slices or re.findall(r"^GPU (\d+):", listed, re.MULTILINE)


@contextmanager
def device_for(
    cfg: DictConfig, devices: Sequence[str], side_by_side: bool
) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """Environment variables of a job, and the file descriptors to pass to its process.

    A job of one device gets the first of the least busy devices, through `CUDA_VISIBLE_DEVICES`.
    The variable is left alone if that is the first device and this call has no other job
    (`side_by_side`). A run that takes several devices, or names them, keeps them, and others see
    them as taken. Empty on the CPU.

    Raises:
        OSError: the system's temporary folder is not writable, or another user created ours in it.
    """
    environment, locks = dict[str, str](), list[int]()
    try:
        for choices in _choices(cfg.trainer, devices):
            device, lock = _take(choices)
            locks.append(lock)
            if len(choices) > 1 and (side_by_side or device != devices[0]):
                environment = {VISIBLE: device}
        yield environment, tuple(locks)
    finally:
        for lock in locks:  # the job's process has its own copy
            os.close(lock)


def _choices(trainer: Mapping[str, Any], devices: Sequence[str]) -> list[Sequence[str]]:
    """The candidates for each device that a run takes."""
    if not devices or trainer.get("accelerator", "auto") not in ("auto", "gpu", "cuda"):
        return []
    given = trainer.get("devices", 1)
    number = number_asked_for(given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [[devices[k]] for k in given if k < len(devices)]
    if number == 1:
        return [devices]
    return [[device] for device in devices[:number]]


def _take(choices: Sequence[str]) -> tuple[str, int]:
    """The first device with the lowest free slot, and the lock of that slot."""
    own = Path(tempfile.gettempdir()) / f"isotrain-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise PermissionError(f"{own} belongs to another user; set TMPDIR to a folder of your own")
    job = os.environ.get("SLURM_JOB_ID", "")
    folder = own / f"devices{job and '-'}{job}"
    folder.mkdir(exist_ok=True)
    for place in count():
        for device in choices:
            name = re.sub(r"[^A-Za-z0-9-]", "_", device)
            if (lock := take(folder / f"{name}.{place}")) is not None:
                return device, lock
    raise AssertionError  # slots are unlimited
