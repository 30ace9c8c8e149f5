"""How far a run is: steps of rows, of checkpoints, of the plan; and who is at it."""

import fcntl

import pytest

from isotrain.runs.record import owned
from isotrain.runs.stored import checkpoint_step, is_owned, newest_step, steps_of


def test_the_newest_whole_row(tmp_path):
    rows = tmp_path / "metrics.jsonl"
    rows.write_text('{"step": 0, "time_s": 1.0}\n{"step": 40, "time_s": 2.0}\n{"step": 41, "ti')
    assert newest_step(rows) == 40
    rows.write_text('{"step": 3, "x": "' + "1" * 2**18 + '"}\n{"step": 7}\n')
    assert newest_step(rows) == 7
    rows.write_text("")
    assert newest_step(rows) is None
    assert newest_step(tmp_path / "none") is None


def record(trainer, n_rows, batch_size):
    """What a run's record says of its length."""
    config = {"trainer": trainer, "data": {"batch_size": batch_size}}
    return {"n_rows": {"train": n_rows}, "config": config}


@pytest.mark.parametrize("n_rows", [1, 32, 33, 95])
@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("limit", [None, 2, 0.5])
def test_steps_are_those_of_a_loop(n_rows, accumulated, limit):
    """The reference deals the batches out one by one."""
    trainer = {"max_epochs": 3, "max_steps": -1, "accumulate_grad_batches": accumulated}
    if limit is not None:
        trainer["limit_train_batches"] = limit
    batches = len(range(0, n_rows, 32))
    batches = min(batches, limit) if isinstance(limit, int) else int(batches * (limit or 1))
    steps = 0
    for _epoch in range(3):
        waiting = 0
        for batch in range(batches):
            waiting += 1
            if waiting == accumulated or batch == batches - 1:
                steps, waiting = steps + 1, 0
    assert steps_of(record(trainer, n_rows, 32)) == steps
    assert steps_of(record(trainer | {"max_steps": 2}, n_rows, 32)) == min(2, steps)


@pytest.mark.parametrize(("devices", "steps"), [(1, 12), ([0, 1], 10), ("auto", 12)])
def test_a_batch_too_small_for_all_processes_is_no_step(devices, steps):
    """96 rows in batches of 19 leave one: 5 batches of two processes, and 6 of one."""
    assert steps_of(record({"max_epochs": 2, "devices": devices}, 96, 19)) == steps


@pytest.mark.parametrize("content", ['{"step"', None])
def test_a_checkpoint_whose_step_was_not_written_has_none(tmp_path, content):
    (tmp_path / "resume.ckpt").touch()
    if content is not None:
        (tmp_path / "resume.json").write_text(content)
    assert checkpoint_step(tmp_path) is None
    (tmp_path / "resume.json").write_text('{"step": 17}\n')
    assert checkpoint_step(tmp_path) == 17
    (tmp_path / "resume.ckpt").unlink()
    assert checkpoint_step(tmp_path) is None, "the checkpoint itself is gone"


def test_a_run_is_owned_while_its_lock_is_held(tmp_path):
    assert not is_owned(tmp_path)
    assert list(tmp_path.iterdir()) == []
    lock = owned(tmp_path)
    with lock:
        assert is_owned(tmp_path)
    assert not is_owned(tmp_path)
    with (tmp_path / ".lock").open("rb") as other:  # who only looks does not own
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_owned(tmp_path)
