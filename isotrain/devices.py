"""Which CUDA device a job sees when several run at a time. Imports nothing heavy."""

from __future__ import annotations

import os
import re
import subprocess

from omegaconf import DictConfig

from isotrain.config.processes import number_asked_for

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


def device_of(cfg: DictConfig, slot: int, devices: list[str]) -> dict[str, str]:
    """What the environment of a job adds: `CUDA_VISIBLE_DEVICES`, the device of its slot.

    Device number `slot` mod their number. Nothing with fewer than two devices, on the CPU, and
    where a run takes several devices or names its own.

    >>> cfg = DictConfig({"trainer": {"accelerator": "auto", "devices": 1}})
    >>> device_of(cfg, 3, ["0", "1"]), device_of(cfg, 3, ["0"])
    ({'CUDA_VISIBLE_DEVICES': '1'}, {})
    """
    trainer = cfg.trainer
    on_cuda = trainer.get("accelerator", "auto") in ("auto", "gpu", "cuda")
    given = trainer.get("devices", 1)
    takes_one = isinstance(given, int | str) and number_asked_for(given) == 1
    if len(devices) < 2 or not on_cuda or not takes_one:
        return {}
    return {VISIBLE: devices[slot % len(devices)]}
