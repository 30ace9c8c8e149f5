"""How many processes a run is, as `trainer.devices` says it: the one place that reads the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def n_processes(trainer: Mapping[str, Any]) -> int:
    """The processes that a trainer's keys ask for on this machine, at least 1.

    `devices` is their number, a list of devices, or `auto`: one for each GPU, which torch is
    asked about (then only: importing it takes seconds).

    Raises:
        ValueError: any other value.

    >>> n_processes({}), n_processes({"devices": 2}), n_processes({"devices": [0, 1]})
    (1, 2, 2)
    """
    number = number_asked_for(trainer.get("devices", 1))
    if number is not None:
        return number
    if trainer.get("accelerator", "auto") not in ("auto", "gpu", "cuda"):
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def number_asked_for(devices: Any) -> int | None:
    """The number of processes that `trainer.devices` names; None for `auto`.

    Raises:
        ValueError: it is neither a number from 1 nor a list of device numbers nor `auto`.
    """
    if devices == "auto":
        return None
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        if devices and all(type(device) is int for device in devices):
            return len(devices)
    elif str(devices).isdigit() and int(devices) > 0:
        return int(devices)
    raise ValueError(
        "trainer.devices must be a number of processes from 1, a list of devices, or auto, got "
        f"{devices}"
    )
