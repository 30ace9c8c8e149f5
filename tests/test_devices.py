"""The CUDA devices of this machine, by a fake nvidia-smi, and which of them a worker takes."""

import os
import tempfile
from contextlib import contextmanager
from multiprocessing import get_context

import pytest
from omegaconf import OmegaConf

from isotrain.launch import devices
from isotrain.launch.devices import VISIBLE, cuda_devices

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
    """Locks and claims of this test's own, on two devices."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(devices, "_claims", [])
    monkeypatch.setenv(VISIBLE, "4,7")
    return tmp_path


def run_of(**trainer):
    return OmegaConf.create({"trainer": trainer})


def worker(place, connection):
    """A worker of a sweep: claims at each message, and answers with what it sees."""
    tempfile.tempdir = str(place)
    while (trainer := connection.recv()) is not None:
        devices.claim(run_of(**trainer))
        connection.send(os.environ[VISIBLE])


@contextmanager
def workers(place, n):
    """`n` worker processes, as functions that claim for a run."""
    context = get_context("fork")
    pairs = [context.Pipe() for _ in range(n)]
    processes = [context.Process(target=worker, args=(place, theirs)) for _, theirs in pairs]

    def ask(own):
        def claim(**trainer):
            own.send(trainer)
            return own.recv()

        return claim

    for process in processes:
        process.start()
    try:
        yield [ask(own) for own, _ in pairs], processes
    finally:
        for own, _ in pairs:
            own.send(None)
        for process in processes:
            process.join()


def test_workers_spread_over_the_devices_and_keep_theirs(places):
    with workers(places, 3) as (claims, _):
        assert [claim() for claim in claims] == ["4", "7", "4"]
        assert [claim(devices=1, accelerator="gpu") for claim in claims] == ["4", "7", "4"]
    with workers(places, 1) as ((claim,), _):
        assert claim() == "4", "the others have ended"


def test_the_place_of_a_killed_worker_is_free(places):
    with workers(places, 2) as ((first, second), (process, _)):
        assert first() == "4"
        process.kill()
        process.join()
        assert second() == "4"


@pytest.mark.parametrize(
    "trainer", [{"accelerator": "cpu"}, {"devices": 2}, {"devices": [1]}, {"devices": "auto"}]
)
def test_a_run_that_chooses_for_itself_claims_nothing(places, trainer):
    devices.claim(run_of(**trainer))
    assert os.environ[VISIBLE] == "4,7"


def test_one_device_needs_no_claim(places, monkeypatch):
    monkeypatch.setenv(VISIBLE, "4")
    devices.claim(run_of())
    assert os.environ[VISIBLE] == "4"
    assert list(places.iterdir()) == []


def test_ranks_see_all_devices(places, monkeypatch):
    devices.claim(run_of())
    assert os.environ[VISIBLE] == "4"
    assert devices.unclaimed()[VISIBLE] == "4,7"


def test_the_folder_of_places_is_ours_alone(places, monkeypatch):
    devices.claim(run_of())
    own = places / f"isotrain-{os.getuid()}"
    assert own.stat().st_mode & 0o777 == 0o700
