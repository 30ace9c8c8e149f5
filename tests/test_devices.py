"""The CUDA devices of this machine, by a fake nvidia-smi, and which of them a job sees."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from isotrain.devices import VISIBLE, cuda_devices, device_of

WHOLE = "GPU 0: NVIDIA A (UUID: GPU-1)\nGPU 1: NVIDIA A (UUID: GPU-2)\n"
DIVIDED = (
    "GPU 0: NVIDIA B (UUID: GPU-1)\n"
    "  MIG 3g.40gb     Device  0: (UUID: MIG-aa)\n  MIG 3g.40gb     Device  1: (UUID: MIG-bb)\n"
)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi that prints a text, or fails, on a PATH of its own."""

    def put(text, code=0):
        file = tmp_path / "nvidia-smi"
        file.write_text(f"#!/bin/sh\n[ $1 = -L ] || exit 9\nprintf '{text}'\nexit {code}\n")
        file.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.delenv(VISIBLE, raising=False)
    return put


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        (WHOLE, 0, ["0", "1"]),
        (DIVIDED, 0, ["MIG-aa", "MIG-bb"]),
        ("", 0, []),
        ("no driver", 9, []),
    ],
)
def test_devices_that_nvidia_smi_lists(smi, text, code, found):
    smi(text.replace("\n", "\\n"), code)
    assert cuda_devices() == found


def test_a_machine_without_nvidia_smi(smi):
    assert cuda_devices() == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("3,1", ["3", "1"]),
        (" 2 , 5", ["2", "5"]),
        ("MIG-aa", ["MIG-aa"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
    ],
)
def test_the_variable_comes_first(smi, monkeypatch, given, found):
    smi(WHOLE.replace("\n", "\\n"))
    monkeypatch.setenv(VISIBLE, given)
    assert cuda_devices() == found


@pytest.mark.parametrize(
    ("trainer", "devices", "seen"),
    [
        ({"accelerator": "auto", "devices": 1}, ["4", "7"], ["4", "7", "4"]),
        ({"accelerator": "gpu", "devices": "1"}, ["4", "7", "9"], ["4", "7", "9"]),
        ({"accelerator": "cuda"}, ["4", "7"], ["4", "7", "4"]),
        ({"accelerator": "cpu", "devices": 1}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": 2}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": "auto"}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": [1]}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": 1}, ["4"], [None] * 3),
        ({"accelerator": "auto", "devices": 1}, [], [None] * 3),
    ],
)
def test_what_the_job_of_each_slot_sees(trainer, devices, seen):
    cfg = OmegaConf.create({"trainer": trainer})
    assert [device_of(cfg, slot, devices).get(VISIBLE) for slot in range(3)] == seen
