"""A checkpoint is loaded as it was written, or not at all."""

from __future__ import annotations

import errno
import random

import pytest
import torch

from isotrain.model.checkpoint import load_checkpoint, save_checkpoint
from isotrain.runs.shapes import DamagedError

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
        with pytest.raises(DamagedError, match="not what was written"):
            load_checkpoint(file)
    torch.save(STATE, file)
    with pytest.raises(DamagedError, match="not what was written"):
        load_checkpoint(file)
    file.unlink()
    with pytest.raises(DamagedError, match="it is gone"):
        load_checkpoint(file)
    file.mkdir()
    with pytest.raises(DamagedError, match="it is no file"):
        load_checkpoint(file)


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
