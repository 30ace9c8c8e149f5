"""Runs of several processes that a process without a command line of their own starts."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout

import pytest

from isotrain.launch.ranks import RanksError, needs_ranks, run_in_ranks
from isotrain.runs.record import CannotRunError

LEFT_OUT = ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_STEP_NUM_TASKS")
ONE_TASK = (  # of Slurm, as `srun -n1` and submitit start one
    *("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES", "SLURM_STEP_NUM_TASKS"),
    *("SLURM_STEP_NUM_NODES", "SLURM_JOB_ID", "SLURM_STEP_ID"),
)
TWO = ("task=rte", "metric=[]", "threads=1", "trainer.devices=2", "data.n_train=32")


@pytest.fixture
def two(composed, small, tmp_path):
    """`two("seed=1")`: a run of two processes."""
    return lambda *more: composed(*small, *TWO, f"output_dir={tmp_path / 'runs'}", *more)


def results(tmp_path):
    return [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/*/result.json")]


def test_who_starts_ranks(two, composed, monkeypatch):
    for name in LEFT_OUT:
        monkeypatch.delenv(name, raising=False)
    assert needs_ranks(two())
    assert not needs_ranks(composed("trainer.devices=1"))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not needs_ranks(two())


@pytest.mark.slow
def test_ranks_need_no_command_line_and_print_to_the_log_of_a_worker(two, tmp_path, monkeypatch):
    """Also within the one task of a Slurm job: the run starts its own."""
    for name in ONE_TASK:
        monkeypatch.setenv(name, "1")
    for name in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr("sys.argv", ["worker", "--nonsense"])
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "log").open("w") as log, redirect_stdout(log):
        run_in_ranks(two(), ["seed=0"])
    (result,) = results(tmp_path)
    assert (result["status"], result["n_processes"]) == ("finished", 2)
    assert result["place"]["job"] == "1"
    assert (result["overrides"], result["environment"]["threads"]) == (["seed=0"], 1)
    assert "result.json" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_errors_of_ranks_are_those_of_a_run(two, tmp_path):
    with pytest.raises(CannotRunError, match="no-such-run"):
        run_in_ranks(two("init_from=no-such-run"))
    with ThreadPoolExecutor() as threads:  # which has no signals
        failed = threads.submit(
            run_in_ranks, two("optimizer.lr=1e9", "trainer.gradient_clip_val=0")
        )
        with pytest.raises(RanksError, match="the loss is nan"):
            failed.result()


@pytest.mark.slow
def test_a_signal_is_passed_on_and_the_run_resumes(two, tmp_path):
    cfg = two("trainer.max_epochs=10", "checkpoint.every_steps=1", "data.n_train=64")

    def stop():
        while not list(tmp_path.glob("runs/*/*/resume.ckpt")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(SystemExit) as stopped:
        run_in_ranks(cfg)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert [result["status"] for result in results(tmp_path)] == ["interrupted"]
    run_in_ranks(cfg)
    (result,) = results(tmp_path)
    assert result["status"] == "finished"
    assert result["resumed_after_step"] > 0
