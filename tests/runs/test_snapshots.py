"""The files of snapshots: what is written is what is read, whole or not at all."""

import os

import numpy as np
import pytest

from isotrain.runs import snapshots
from isotrain.runs.snapshots import read_snapshots, snapshot_steps, write_snapshot

ARRAYS = {
    "spectrum/layer_01/tokens": np.array([3.0, 1.0], dtype=np.float32),
    "map/layer_01/tokens": np.arange(6.0, dtype=np.float32).reshape(3, 2),
    "cluster/layer_01/tokens": np.array([0, 7, 1], dtype=np.int16),
    "n_rows/layer_01/tokens": np.array(40),
    "index/tokens": np.array([2**40, 0, 1]),
    "token/tokens": np.array(["[CLS]", "größe", "##’s"]),
}


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name, array in one.items():
        assert array.dtype == two[name].dtype
        assert np.array_equal(array, two[name])


def test_what_is_written_is_read_in_the_order_of_steps(tmp_path):
    for step in (1000, 0, 20, 123_456_789):
        path = write_snapshot(tmp_path, step, ARRAYS | {"n_rows/layer_01/tokens": np.array(step)})
        assert path.parent == tmp_path / "snapshots"
    assert (tmp_path / "snapshots" / "step_00000020.npz").is_file()
    found = read_snapshots(tmp_path)
    assert list(found) == [0, 20, 1000, 123_456_789]
    for step, arrays in found.items():
        assert_same(arrays, ARRAYS | {"n_rows/layer_01/tokens": np.array(step)})


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_write_that_fails_leaves_the_earlier_file_or_none(tmp_path, monkeypatch, error, earlier):
    if earlier:
        write_snapshot(tmp_path, 5, ARRAYS)

    def half(file, **arrays):
        file.write(b"PK half a file")
        raise error

    monkeypatch.setattr(snapshots.np, "savez", half)
    with pytest.raises(type(error)):
        write_snapshot(tmp_path, 5, {"n_rows/pooled/after": np.array(1)})
    left = [path.name for path in (tmp_path / "snapshots").iterdir()]
    assert left == ["step_00000005.npz"] * earlier
    for arrays in read_snapshots(tmp_path).values():
        assert_same(arrays, ARRAYS)


def test_a_write_that_was_killed_is_no_snapshot_and_is_made_good(tmp_path, monkeypatch):
    """A kill cannot clean up: what it leaves has another name, which the next write takes."""
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *_: None)  # the process ended before it
    write_snapshot(tmp_path, 5, ARRAYS)
    assert read_snapshots(tmp_path) == {}
    monkeypatch.setattr(os, "replace", replace)
    write_snapshot(tmp_path, 5, ARRAYS)
    assert [path.suffix for path in (tmp_path / "snapshots").iterdir()] == [".npz"]
    assert_same(read_snapshots(tmp_path)[5], ARRAYS)


def test_nothing_that_is_read_can_run_code(tmp_path):
    """An array of objects is a pickle."""
    write_snapshot(tmp_path, 5, {"token/tokens": np.array([{"a": 1}], dtype=object)})
    write_snapshot(tmp_path, 7, ARRAYS)
    assert list(read_snapshots(tmp_path)) == [7]


def test_a_damaged_one_is_left_out(tmp_path):
    for step in (0, 5, 9):
        path = write_snapshot(tmp_path, step, ARRAYS)
        if step == 5:
            path.write_bytes(path.read_bytes()[:40])
        if step == 9:
            path.write_bytes(b"")
    assert list(read_snapshots(tmp_path)) == [0]
    assert snapshot_steps(tmp_path) == [0, 5, 9]


def test_a_reader_may_ask_for_a_few_of_many(tmp_path):
    for step in range(0, 300, 10):
        write_snapshot(tmp_path, step, {"n_rows/pooled/after": np.array(step)})
    few = read_snapshots(tmp_path, most=4)
    assert list(few) == [0, 100, 190, 290]
    assert [int(arrays["n_rows/pooled/after"]) for arrays in few.values()] == list(few)
    assert len(read_snapshots(tmp_path)) == len(read_snapshots(tmp_path, most=30)) == 30
