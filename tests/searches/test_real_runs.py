"""Searches over real trainings: processes of a run, and a power cut in the middle of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

QUICK = ("--trials", "1", "metric=[]", "data.n_dev=128", "trainer.max_steps=20")
QUICK += ("trainer.val_check_interval=10", "data.n_test=128")
pytestmark = pytest.mark.campaign


def start(folder, *more):
    line = [
        sys.executable,
        "-m",
        "isotrain",
        "run",
        "smoke_search",
        f"output_dir={folder}",
        *QUICK,
        *more,
    ]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def results(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("stsb/*/result.json"))]


def test_a_trial_over_two_processes_trains_one_job_with_one_set_of_values(tmp_path):
    process = start(tmp_path, "trainer.devices=2")
    text = process.communicate(timeout=280)[0]
    assert process.returncode == 0, text
    (result,) = results(tmp_path)  # a rank with values of its own would have another folder
    assert (result["n_processes"], result["status"]) == (2, "finished")
    assert result["search"] == "smoke_search"
    assert f"optimizer.lr={result['config']['optimizer']['lr']}" in text
    assert "1 of 1 trials: 1 complete." in text


def test_after_a_kill_a_run_goes_on_from_its_checkpoint(tmp_path):
    process = start(tmp_path / "killed", "checkpoint.every_steps=2")
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("killed/stsb/*/resume.ckpt")):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (run,) = tmp_path.glob("killed/stsb/*")
    worker = int((run / ".lock").read_text())
    process.kill()
    os.kill(worker, signal.SIGKILL)
    process.communicate()
    again = start(tmp_path / "killed", "checkpoint.every_steps=2")
    text = again.communicate(timeout=280)[0]
    assert again.returncode == 0, text
    (result,) = results(tmp_path / "killed")
    assert result["resumed_after_step"] > 0
    assert result["steps"] == 20
