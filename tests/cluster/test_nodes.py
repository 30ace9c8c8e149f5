"""One run over two nodes of Slurm: the same numbers as one process, and what stops end it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from isotrain.runs.files import read_json
from tests.processes import train_on_ranks
from tests.test_nodes import RUN, after_step, assert_equal_rows, left_by
from tools.kill_points import untimed

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
TWO = ("srun", "--nodes=2", "--ntasks-per-node=1")
TRAIN = (sys.executable, "-m", "isotrain", "train")


@pytest.fixture
def started(slurm, tmp_path):
    """`started("srun", ...)`: a command of Slurm, in a folder of its own."""

    def start(*command, folder="two"):
        (tmp_path / folder).mkdir(exist_ok=True)
        kept = {name: x for name, x in os.environ.items() if name != "OMP_NUM_THREADS"}
        own = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "MASTER_ADDR": "127.0.0.1"}
        return subprocess.Popen(
            list(map(str, command)),
            cwd=tmp_path / folder,
            env={**kept, **own, **slurm},  # the nodes' names do not resolve
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def task(rank, folder):
    """The process of a rank that srun has started in a folder."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ() if process.cwd() == str(folder) else {}
            if process.name().startswith("python") and environment.get("SLURM_PROCID") == str(rank):
                return process
    raise AssertionError(f"no process of rank {rank} in {folder}")


def test_two_nodes_are_one_process(started, small, tmp_path):
    line = (*small, *RUN, "encoder.dropout=0")
    folder, _ = train_on_ranks(1, tmp_path / "one", *line)
    process = started(*TWO, *TRAIN, *line, "trainer.num_nodes=2")
    text = process.communicate(timeout=600)[0]
    assert process.returncode == 0, text
    assert text.count("metrics.jsonl (") == 1, "rank 0 prints"
    (two,) = (tmp_path / "two").rglob("result.json")
    (result1, _, rows1), (result2, _, rows2) = left_by(folder), left_by(two.parent)
    assert (result1["n_processes"], result2["n_processes"]) == (1, 2)
    assert_equal_rows(rows1, rows2)


def test_a_lost_task_ends_the_other_and_the_run_goes_on_to_the_same_end(started, small, tmp_path):
    """Then SIGTERM to one task stops both, with a checkpoint."""
    line = (*small, *RUN, "encoder.dropout=0.1", "trainer.max_epochs=8", "checkpoint.every_steps=2")
    whole, _ = train_on_ranks(2, tmp_path / "whole", *line)
    again = (*TWO, *TRAIN, *line, "trainer.num_nodes=2")

    process = started(*again)
    step = after_step(0, tmp_path / "two", [process])
    task(1, tmp_path / "two").kill()
    killed_at = time.monotonic()
    text = process.communicate(timeout=600)[0]
    assert time.monotonic() - killed_at < 60
    assert process.returncode == 128 + signal.SIGKILL, text
    assert "another process of the run ended or does not answer (" in text

    process = started(*again)
    step = after_step(step + 2, tmp_path / "two", [process])
    task(1, tmp_path / "two").terminate()
    text = process.communicate(timeout=600)[0]
    assert process.returncode == 128 + signal.SIGTERM, text
    (result,) = (tmp_path / "two").rglob("result.json")
    assert read_json(result)["status"] == "interrupted"

    process = started(*again)
    text = process.communicate(timeout=600)[0]
    assert process.returncode == 0, text
    (result1, state1, rows1), (result2, state2, rows2) = left_by(whole), left_by(result.parent)
    assert result2["resumed_after_step"] >= step
    assert result1["steps"] == result2["steps"]
    for name, weights in state1.items():
        assert torch.equal(weights, state2[name]), name
    assert [untimed(row) for row in rows1] == [untimed(row) for row in rows2]


def test_more_tasks_than_the_run_has_are_an_error(started, small):
    process = started(*TWO, *TRAIN, *small, "task=rte", "threads=1")
    text = process.communicate(timeout=600)[0]
    assert process.returncode == 2, text
    assert "srun started 2 ranks on 2 nodes" in text
    assert "set trainer.num_nodes=2 trainer.devices=1" in text


@pytest.mark.parametrize("by_srun", [False, True])
def test_a_job_of_one_task_starts_its_own_ranks(started, small, tmp_path, by_srun):
    """As its script, or as a step of one task, such as submitit's."""
    line = [*["srun"] * by_srun, *TRAIN, *small, "task=rte", "metric=[]", "threads=1"]
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n{' '.join(map(str, line))} trainer.devices=2\n")
    job = ("sbatch", "--wait", "--nodes=1", "--ntasks=1", "--output=log.txt")
    process = started(*job, script, folder="job")
    text = process.communicate(timeout=600)[0]
    assert process.returncode == 0, text + (tmp_path / "job" / "log.txt").read_text()
    (result,) = (tmp_path / "job").rglob("result.json")
    found = json.loads(result.read_text())
    assert (found["status"], found["n_processes"]) == ("finished", 2)
