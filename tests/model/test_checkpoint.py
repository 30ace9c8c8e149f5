"""A checkpoint is loaded as it was written, or not at all."""

import errno
import hashlib
import os
import pickle
import random

import pytest
import torch

from isotrain.model.checkpoint import (
    load_checkpoint,
    load_weights,
    save_checkpoint,
    stored_digest,
)
from isotrain.runs.files import DamagedError, write_json

STATE = {"state_dict": {"x": torch.arange(300.0)}, "step": 3, "list": [1, "two"]}


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
        with pytest.raises(DamagedError, match=r"not what was written|it has no digest"):
            load_checkpoint(file)
    torch.save(STATE, file)
    with pytest.raises(DamagedError, match=r"no digest: it is of an earlier .* rerun=true if"):
        load_checkpoint(file)
    file.unlink()
    with pytest.raises(DamagedError, match="it is gone"):
        load_checkpoint(file)
    file.mkdir()
    with pytest.raises(DamagedError, match="it is no file"):
        load_checkpoint(file)


class Foreign:
    """What no plain tensor is."""


@pytest.mark.parametrize(
    "state", [{"state_dict": Foreign()}, {"state_dict": [1]}, {"weights": {}}, [1], torch.ones(1)]
)
def test_other_content_with_its_digest_is_damage(file, state):
    save_checkpoint(state, file)
    with pytest.raises(DamagedError, match=r"as plain tensors|has no state_dict") as caught:
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


def test_weights_are_those_that_the_record_of_their_run_names(tmp_path):
    own, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    file, record = tmp_path / "last.ckpt", tmp_path / "result.json"
    save_checkpoint({"state_dict": {f"head.{k}": x for k, x in own.state_dict().items()}}, file)
    write_json(record, {"status": "finished", "weights_sha256": stored_digest(file)})
    load_weights(other, file, "head.")
    assert torch.equal(own.weight, other.weight)
    with pytest.raises(ValueError, match="does not match this Bilinear; give a run with the same"):
        load_weights(torch.nn.Bilinear(2, 1, 1), file, "head.")
    save_checkpoint({"state_dict": {1: 1}}, file)  # of another run
    for known in ("0" * 64, None):
        write_json(record, {"status": "finished", "weights_sha256": known})
        with pytest.raises(DamagedError, match=r"result\.json beside it has another digest"):
            load_weights(other, file)
    write_json(record, {"status": "finished", "weights_sha256": stored_digest(file)})
    with pytest.raises(ValueError, match="does not match this Linear"):
        load_weights(other, file)


def test_what_is_written_is_kept_through_a_power_cut(file, monkeypatch):
    """Contents before the name, the name before what comes next."""
    calls, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append(os.fstat(number).st_ino))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    save_checkpoint(STATE, file)
    assert calls == [file.stat().st_ino, "replace", file.parent.stat().st_ino]


@pytest.mark.parametrize("room", [0, 100, 700, 1500, 2500])
def test_a_full_disk_is_told_as_such_and_the_older_file_is_intact(file, room, monkeypatch):
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
