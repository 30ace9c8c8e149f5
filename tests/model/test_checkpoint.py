"""A checkpoint is loaded as it was written, or not at all."""

import errno
import hashlib
import os
import pickle
import random
import resource
import signal

import pytest
import torch

from isotrain.model.checkpoint import (
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from isotrain.runs.files import DamagedError, sha256_of, write_json

TENSORS = {"x": torch.arange(300.0)}
STATE = {"state_dict": TENSORS, "step": 3, "list": [1, "two"]}


@pytest.fixture
def file(tmp_path):
    save_checkpoint(STATE, tmp_path / "a.ckpt")
    return tmp_path / "a.ckpt"


def test_torch_reads_it_too(file):
    for state in (load_checkpoint(file), torch.load(file, weights_only=True)):
        assert torch.equal(state["state_dict"]["x"], STATE["state_dict"]["x"])
        assert (state["step"], state["list"]) == (3, [1, "two"])


def test_any_other_content_is_damage(file):
    whole, draw = file.read_bytes(), random.Random(0)
    flips = [draw.randrange(8 * len(whole)) for _ in range(100)]
    flipped = [
        whole[: k // 8] + bytes([whole[k // 8] ^ 1 << k % 8]) + whole[k // 8 + 1 :] for k in flips
    ]
    cut = [whole[:n] for n in (0, 1, 63, 64, 65, len(whole) - 64, len(whole) - 1)]
    for content in (*flipped, *cut, whole + b"x", bytes(len(whole)), draw.randbytes(999)):
        file.write_bytes(content)
        with pytest.raises(DamagedError, match="not what was written"):
            load_checkpoint(file)
    torch.save(STATE, file)
    with pytest.raises(DamagedError, match=r"not what was written.* rerun=true if"):
        load_checkpoint(file)
    file.unlink()
    with pytest.raises(DamagedError, match="it is gone"):
        load_checkpoint(file)
    file.mkdir()
    with pytest.raises(DamagedError, match="it is no file"):
        load_checkpoint(file)


class Foreign:
    """What no plain tensor is."""


def test_other_content_with_its_digest_is_damage(file):
    save_checkpoint({"state_dict": Foreign()}, file)
    with pytest.raises(DamagedError, match="as plain tensors") as caught:
        load_checkpoint(file)
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("content", [pickle.dumps(STATE), b"", b"PK\3\4 and no archive"])
def test_what_is_no_archive_is_damage(file, content):
    file.write_bytes(content + hashlib.sha256(content).hexdigest().encode())
    with pytest.raises(DamagedError, match=r"torch cannot load it as plain tensors\)"):
        load_checkpoint(file)


def test_storage_that_fails_just_now_is_no_damage(file, monkeypatch):
    def busy(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(torch, "load", busy)
    with pytest.raises(OSError, match="Input/output error"):
        load_checkpoint(file)


@pytest.fixture
def run_of(tmp_path):
    """`run_of(state)`: the weights of a finished run with this state, and its record beside."""

    def write(state):
        save_weights(state, file := tmp_path / "weights.safetensors")
        write_json(tmp_path / "result.json", record(sha256_of(file)))
        return file

    return write


def record(digest):
    return {"status": "finished", "weights_sha256": digest}


def test_weights_come_back_bit_by_bit(run_of):
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3))
    layers[1].weight = layers[0].weight  # one tensor, two names
    layers.register_buffer("turned", torch.randn(2, 5, dtype=torch.float64).T)
    layers.register_buffer("is_fitted", torch.tensor(True))
    layers.register_buffer("queue", torch.empty(0, 3))
    file = run_of(layers.state_dict())
    other = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3))
    for name, x in layers.named_buffers():
        other.register_buffer(name, torch.zeros_like(x))
    load_weights(other, file)
    for name, x in layers.state_dict().items():
        found = other.state_dict()[name]
        assert found.dtype == x.dtype
        assert torch.equal(found, x), name


def test_weights_are_those_that_the_record_of_their_run_names(run_of):
    own, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    file = run_of({f"head.{k}": x for k, x in own.state_dict().items()})
    load_weights(other, file, "head.")
    assert torch.equal(own.weight, other.weight)
    with pytest.raises(ValueError, match="does not match this Bilinear; give a run with the same"):
        load_weights(torch.nn.Bilinear(2, 1, 1), file, "head.")
    for known in ("0" * 64, None):
        write_json(file.with_name("result.json"), record(known))
        with pytest.raises(DamagedError, match=r"its SHA-256 is not that in result\.json"):
            load_weights(other, file)
    file.write_bytes(b"no tensors")
    write_json(file.with_name("result.json"), record(sha256_of(file)))
    with pytest.raises(DamagedError, match=r"weights\.safetensors is damaged"):
        load_weights(other, file)


def test_any_other_bytes_of_weights_are_damage(run_of):
    own, draw = torch.nn.Linear(20, 20), random.Random(0)
    file = run_of(own.state_dict())
    whole = file.read_bytes()
    for _ in range(50):
        k = draw.randrange(8 * len(whole))
        file.write_bytes(
            whole[: k // 8] + bytes([whole[k // 8] ^ 1 << k % 8]) + whole[k // 8 + 1 :]
        )
        with pytest.raises(DamagedError, match="its SHA-256 is not that"):
            load_weights(own, file)


def test_a_full_disk_leaves_the_older_weights(run_of):
    file = run_of({"x": torch.zeros(10)})
    before, limits = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_weights({"x": torch.zeros(10_000)}, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_bytes() == before
    assert {path.name for path in file.parent.iterdir()} == {"result.json", file.name}


@pytest.mark.parametrize("save", [save_checkpoint, lambda state, file: save_weights(TENSORS, file)])
def test_what_is_written_is_kept_through_a_power_cut(file, monkeypatch, save):
    """Contents before the name, the name before what comes next."""
    calls, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append(os.fstat(number).st_ino))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    save(STATE, file)
    assert calls == [file.stat().st_ino, "replace", file.parent.stat().st_ino]


@pytest.mark.parametrize("room", [0, 100, 700, 1500, 2500])
def test_a_full_disk_is_reported_as_such_and_the_older_file_is_intact(file, room, monkeypatch):
    before, opened = file.read_bytes(), type(file).open
    assert room < len(before)

    class Disk:
        """A file on a disk with some room."""

        def __init__(self, stream):
            self.stream, self.room = stream, room

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.stream.close()

        def write(self, data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.stream.write(data)

        def flush(self):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(type(file), "open", lambda self, mode: Disk(opened(self, mode)))
        with pytest.raises(OSError, match="No space left") as caught:
            save_checkpoint(STATE, file)
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in file.parent.iterdir()] == ["a.ckpt"]
    assert file.read_bytes() == before
