"""Real studies and searches: from start to end, over two processes, and killed."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from isotrain.runs.locks import owner
from isotrain.runs.progress import checkpoint_step

pytestmark = pytest.mark.campaign
N_STEPS = 16
STUDY = f"""
overrides: [encoder=tiny, source=demo, trainer.accelerator=cpu, data.batch_size=16, report=false,
            monitor.max_rows=64, 'metric=[isoscore]', monitor.map_rows=0, checkpoint.final=false,
            checkpoint.every_steps=2, trainer.max_steps={N_STEPS}, data.n_dev=256,
            data.n_test=256]
tasks: {{rte: [task=rte]}}
methods:
  none: [isotropy=none]
  cluster_pca: [isotropy=cluster_pca]
baseline: none
seeds: [0]
"""
TABLES = {"table.md", "table.csv", "table.tex", "runs.csv", "runs.parquet"}


def command(action, *more):
    line = [sys.executable, "-m", "isotrain", action, "killed.yaml", *more]
    return [*line, "output_dir=runs"]


def call(folder, action, *more):
    line = command(action, *more)
    ended = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def at_work_below(runs):
    """The processes that own a run, by the names of their jobs."""
    found = {path.parent.name.rpartition("-")[0]: owner(path) for path in runs.glob("*/.lock")}
    return {f"rte-{method}-seed0": one.pid for method, one in found.items() if one is not None}


def files(folder):
    """The content of what a study leaves beside its logs."""
    found = (folder / "runs" / "studies" / "killed").iterdir()
    return {path.name: path.read_bytes() for path in found if path.suffix not in ("", ".lock")}


def results(folder):
    """When the record of each run was written, and its content."""
    found = (folder / "runs" / "rte").glob("*/result.json")
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def test_a_study_from_start_to_end_and_the_same_bytes_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", os.devnull)  # tables name the code, which may change meanwhile
    disturbed, undisturbed = tmp_path / "a", tmp_path / "b"
    for folder in (disturbed, undisturbed):
        folder.mkdir()
        (folder / "killed.yaml").write_text(STUDY)

    call(undisturbed, "run", "--jobs", "2")
    whole = files(undisturbed)
    assert set(whole) == {*TABLES, "plan.yaml", "study.json", "study.html"}
    # 4 scores, 2 clouds of both methods; the input of a layer, of the method that has one
    lines = csv.DictReader(whole["table.csv"].decode().splitlines())
    of_methods = {(line["score"], line["method"]) for line in lines if line["baseline"]}
    assert len(of_methods) == 6 * 2 + 1
    assert len(whole["runs.csv"].splitlines()) == 1 + 2
    done = results(undisturbed)
    assert "2 runs, 2 finished before, 0 to do" in call(undisturbed, "run")
    assert results(undisturbed) == done
    assert files(undisturbed) == whole

    runs = disturbed / "runs" / "rte"
    with (disturbed / "log").open("w") as log:
        parent = subprocess.Popen(command("run", "--jobs", "2"), cwd=disturbed, stdout=log)
    held, at_work = "rte-cluster_pca-seed0", dict[str, int]()
    try:  # one run is held at its first checkpoint while the other one ends; then all are killed
        deadline = time.monotonic() + 300
        while set(at_work_below(runs)) != {held} or held not in at_work:
            assert parent.poll() is None
            assert time.monotonic() < deadline
            if held not in at_work and list(runs.glob("cluster_pca-*/resume.ckpt")):
                at_work[held] = at_work_below(runs)[held]
                os.kill(at_work[held], signal.SIGSTOP)
            time.sleep(0.01)
    finally:
        at_work |= at_work_below(runs)
        parent.kill()  # first: it would start another run
        parent.wait()
        for pid in at_work.values():
            os.kill(pid, signal.SIGKILL)
    (broken,) = runs.glob("*/resume.ckpt")
    step = checkpoint_step(broken.parent)
    assert 0 < step < N_STEPS
    (finished,) = runs.glob("none-*/result.json")
    before = results(disturbed)[finished]
    assert json.loads(before[1])["status"] == "finished"

    assert "2 runs, 1 finished before, 1 to do" in call(disturbed, "run", "--jobs", "2")
    assert results(disturbed)[finished] == before, "it is not done again"
    assert json.loads((broken.parent / "result.json").read_text())["resumed_after_step"] == step
    again = files(disturbed)
    assert {name: again[name] for name in TABLES} == {name: whole[name] for name in TABLES}


QUICK = ("--trials", "1", "metric=[]", "data.n_dev=128", "trainer.max_steps=20")
QUICK += ("trainer.val_check_interval=10", "data.n_test=128", "trainer.devices=2")


def test_a_trial_over_two_processes_trains_one_job_with_one_set_of_values(tmp_path):
    line = [sys.executable, "-m", "isotrain", "run", "smoke_search", f"output_dir={tmp_path}"]
    done = subprocess.run([*line, *QUICK], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("stsb/*/result.json")  # a rank of its own values has another folder
    result = json.loads(file.read_text())
    assert (result["n_processes"], result["status"]) == (2, "finished")
    assert result["search"] == "smoke_search"
    assert f"optimizer.lr={result['config']['optimizer']['lr']}" in done.stdout
    assert "1 of 1 trials: 1 complete." in done.stdout
