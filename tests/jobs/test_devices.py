"""The CUDA devices of this machine, by a fake nvidia-smi, and which of them a job sees."""

import os
import subprocess
from contextlib import ExitStack, contextmanager

import pytest
from omegaconf import OmegaConf

from isotrain.jobs.devices import VISIBLE, cuda_devices, device_for

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


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("3,1", ["3", "1"]),
        (" 2 , 5", ["2", "5"]),
        ("-1", []),
        ("0,-1,1", ["0"]),
    ],
)
def test_the_variable_comes_first(smi, monkeypatch, given, found):
    smi(WHOLE.replace("\n", "\\n"))
    monkeypatch.setenv(VISIBLE, given)
    assert cuda_devices() == found


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder of locks of this test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path


@contextmanager
def jobs_on(trainer, devices, n, side_by_side=True):
    """What each of n jobs sees that are at work together."""
    cfg = OmegaConf.create({"trainer": trainer})
    with ExitStack() as stack:
        given = [stack.enter_context(device_for(cfg, devices, side_by_side)) for _ in range(n)]
        yield [environment.get(VISIBLE) for environment, _ in given]


@pytest.mark.parametrize(
    ("trainer", "devices", "seen"),
    [
        ({"accelerator": "auto", "devices": 1}, ["4", "7"], ["4", "7", "4"]),
        ({"accelerator": "cuda"}, ["4", "7"], ["4", "7", "4"]),
        ({"accelerator": "cpu", "devices": 1}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": 2}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": [1]}, ["4", "7"], [None] * 3),
        ({"accelerator": "auto", "devices": 1}, ["4"], [None] * 3),
    ],
)
def test_what_each_job_of_a_call_sees(places, trainer, devices, seen):
    with jobs_on(trainer, devices, 3) as found:
        assert found == seen


def test_a_call_with_one_job_at_a_time_takes_the_first_device_unless_another_has_it(places):
    with jobs_on({}, ["4", "7"], 1, side_by_side=False) as first:
        assert first == [None], "which is the first one, as a run takes it anyway"
        with jobs_on({}, ["4", "7"], 1, side_by_side=False) as second:
            assert second == ["7"]
        with jobs_on({}, ["4", "7"], 1, side_by_side=False) as second:
            assert second == ["7"], "it is free again"
    with jobs_on({}, ["4", "7"], 1, side_by_side=False) as again:
        assert again == [None]


@pytest.mark.parametrize(
    ("trainer", "devices", "left"),
    [
        ({"devices": [1]}, ["0", "1", "2"], ["0", "2"]),
        ({"devices": 2}, ["0", "1", "2"], ["2", "0"]),
        ({"devices": 1}, ["0"], ["1", "2"]),
        ({"accelerator": "cpu", "devices": 2}, ["0", "1", "2"], ["0", "1"]),
    ],
)
def test_devices_of_runs_that_choose_none_are_seen_as_taken(places, trainer, devices, left):
    with jobs_on(trainer, devices, 1), jobs_on({}, ["0", "1", "2"], 2) as found:
        assert found == left


def test_a_place_is_held_by_the_process_of_the_job_until_it_ends(places):
    """Also when the process that started it is gone: here its own descriptor is closed."""
    cfg = OmegaConf.create({"trainer": {}})
    with device_for(cfg, ["0", "1"], side_by_side=False) as (_, locks):
        job = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=locks)
    with jobs_on({}, ["0", "1"], 1, side_by_side=False) as found:
        assert found == ["1"]
    job.communicate()
    with jobs_on({}, ["0", "1"], 1, side_by_side=False) as found:
        assert found == [None]


def test_the_folder_of_places_is_ours_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"isotrain-{os.getuid()}"
    with jobs_on({}, ["0"], 1):
        assert own.stat().st_mode & 0o777 == 0o700
    another = os.getuid() + 1
    own.rename(tmp_path / f"isotrain-{another}")
    monkeypatch.setattr("os.getuid", lambda: another)
    with pytest.raises(PermissionError, match="belongs to another user"), jobs_on({}, ["0"], 1):
        pass
