"""Which CUDA device a job sees where several are at work. Imports nothing heavy.

A job holds the lock of a place on its device, a file in the system's temporary folder, until its
process has ended: calls of one user on one machine see what the others have taken. A Slurm job has
devices, and locks, of its own.
"""

from __future__ import annotations

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
TIMEOUT_S = 20.0  # of nvidia-smi, which waits for a driver that starts


def cuda_devices() -> list[str]:
    """The CUDA devices that this process may use, as `CUDA_VISIBLE_DEVICES` names them.

    Those of the variable where it is set, else those that `nvidia-smi -L` lists: slices of a
    divided GPU by their names, whole ones by their numbers. None without `nvidia-smi`.
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
    """What the environment of a job adds, and the descriptors that its process is to be passed.

    A job of one device gets the first of those with the fewest jobs by `CUDA_VISIBLE_DEVICES`,
    which is left alone where that is the first of all and this call has no other job
    (`side_by_side`). A run that takes several devices or names its own keeps them, and others see
    that they are taken. Nothing on the CPU.

    Raises:
        OSError: the system's temporary folder takes no files, or another user has made ours there.
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
        for lock in locks:  # the process of the job has its own
            os.close(lock)


def _choices(trainer: Mapping[str, Any], devices: Sequence[str]) -> list[Sequence[str]]:
    """For each device that a run takes those that it may be."""
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
    """The first device with the lowest place that is free, and the lock of that place."""
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
    raise AssertionError  # places do not end
