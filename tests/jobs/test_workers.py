"""Runs in processes that are forked from a warm server: what they are, and that nothing differs."""

import json
import os
import signal
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch

from isotrain.config.compose import write_job
from isotrain.jobs.archive import job_of
from isotrain.jobs.pool import Pool
from isotrain.jobs.process import (
    COMMAND,
    fresh,
    last_lines,
    local,
    own_environment,
    start_job,
    stop_job,
)
from isotrain.run import folder_of
from isotrain.runs.locks import is_locked, owner, take
from tests.stopped_runs import assert_same_end
from tools.kill_points import untimed

LONG = ("trainer.max_epochs=200", "checkpoint.every_steps=1")


@pytest.fixture
def job(composed, small, tmp_path):
    """Makes a job for a pool, with its run below a folder."""

    def make(name, *overrides):
        own = (*small, "task=rte", "threads=1", f"output_dir={tmp_path / 'runs'}", *overrides)
        cfg = composed(*own, "method=method")
        return job_of(cfg, "method", (), label=name)._replace(folder=folder_of(cfg))

    return make


def results(folder):
    """What a run computed: scores, records and weights."""
    scores = json.loads((folder / "result.json").read_text())["scores"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    weights = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
    return scores, list(map(untimed, rows)), weights


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_forked_run_is_a_fresh_run_bit_for_bit(job, tmp_path, n_threads, eventually):
    keys = (
        f"threads={n_threads}",
        "isotropy=cluster_pca",
        "trainer.max_steps=4",
        "data.fraction=1.0",
    )
    forked = job("forked", *keys)
    with Pool(tmp_path / "pool", 1, "pool") as pool:
        assert pool.run([forked]) == 0, (tmp_path / "pool" / "logs" / "forked.log").read_text()
    other = job("fresh", *keys, f"output_dir={tmp_path / 'other'}")
    write_job(other.as_run(), tmp_path / "job.json")
    given = own_environment() | {"OMP_NUM_THREADS": str(n_threads)}
    subprocess.run([*COMMAND, tmp_path / "job.json"], env=given, check=True, capture_output=True)
    assert_same_end(results(forked.folder), results(other.folder))
    server = forkserver._forkserver._forkserver_pid
    assert threads(server) == 1, "it has computed nothing, and no import has started a thread"


def test_a_worker_is_a_group_of_its_own_with_its_log_its_locks_and_its_device(
    job, tmp_path, eventually
):
    log, own = tmp_path / "log", tmp_path / "lock"
    lock = take(own)
    one = job("one", *LONG)
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    process = start_job(one.as_run(), tmp_path / "job.json", log, local, environment, (lock,))
    os.close(lock)
    try:
        eventually(lambda: (one.folder / "resume.ckpt").exists())
        assert os.getpgid(process.pid) == process.pid
        assert is_locked(own), "inherited, until the worker ends"
        given = {str(Path(f"/proc/{process.pid}/fd/{n}").resolve()) for n in (1, 2)}
        assert given == {str(log)}
        assert threads(forkserver._forkserver._forkserver_pid) == 1
        os.kill(process.pid, signal.SIGTERM)
        eventually(lambda: process.poll() is not None)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.poll() == 128 + signal.SIGTERM
    assert "stopped; the same command resumes" in log.read_text()
    assert not is_locked(own)


def test_a_worker_dies_alone_and_the_next_run_goes_on(job, tmp_path, eventually):
    one, other = job("one", *LONG), job("other", "trainer.max_steps=2")
    log = tmp_path / "pool" / "logs" / "one.log"
    with Pool(tmp_path / "pool", 1, "pool") as pool:

        def kill():
            if (one.folder / "resume.ckpt").exists():
                os.kill(owner(one.folder / ".lock").pid, signal.SIGKILL)
            return False

        assert pool.one(one, kill).state == "failed"
        assert pool.one(other).state == "finished"
    assert log.read_text().endswith("isotrain: exit code -9\n")


PARENT = """
import sys
from pathlib import Path
from isotrain.config.compose import read_job
from isotrain.jobs.pool import Pool
from isotrain.run import folder_of
from isotrain.jobs.archive import job_of
run = read_job(Path(sys.argv[1]))
with Pool(Path(sys.argv[2]), 1, "pool") as pool:
    run.cfg.method = run.method
    own = job_of(run.cfg, run.method, (), label="one")
    sys.exit(pool.run([own._replace(folder=folder_of(run.cfg))]))
"""  # without a guard of its own


def test_a_script_without_a_guard_runs_once(job, tmp_path):
    one = job("one", "trainer.max_steps=2")
    write_job(one.as_run(), tmp_path / "job.json")
    (tmp_path / "script.py").write_text("print('here')\n" + PARENT)
    line = [sys.executable, tmp_path / "script.py", tmp_path / "job.json", tmp_path / "pool"]
    found = subprocess.run(line, env=own_environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("here") == 1
    assert "here" not in (tmp_path / "pool" / "logs" / "one.log").read_text()


def test_a_killed_server_costs_no_run_and_the_next_job_has_another(job, tmp_path, eventually):
    one, other = job("one", "trainer.max_epochs=12"), job("other", "trainer.max_steps=2")
    servers = []

    def kill():
        if not servers and (one.folder / "metrics.jsonl").exists():
            servers.append(forkserver._forkserver._forkserver_pid)
            os.kill(servers[0], signal.SIGKILL)
        return False

    with Pool(tmp_path / "pool", 1, "pool") as pool:
        assert pool.one(one, kill).state == "finished"
        assert pool.one(other).state == "finished"
    assert json.loads((one.folder / "result.json").read_text())["resumed_after_step"] is None
    assert forkserver._forkserver._forkserver_pid not in servers


def test_a_worker_whose_server_was_killed_is_stopped_as_any_other(job, tmp_path, eventually):
    one = job("one", *LONG)
    process = start_job(one.as_run(), tmp_path / "job.json", tmp_path / "log")
    eventually(lambda: (one.folder / "resume.ckpt").exists())
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    eventually(lambda: process._process.exitcode is not None)
    assert process.poll() is None
    stop_job(process)
    eventually(lambda: process.poll() is not None)
    assert json.loads((one.folder / "result.json").read_text())["status"] == "interrupted"


def test_a_server_that_ends_while_a_job_starts_gives_a_fresh_process(job, tmp_path, monkeypatch):
    def ended(*_):
        raise EOFError

    monkeypatch.setattr("isotrain.jobs.process._Worker", ended)
    monkeypatch.setattr("isotrain.jobs.process.COMMAND", ("echo", "fresh"))
    start_job(job("one").as_run(), tmp_path / "job", tmp_path / "log").wait(30)
    assert last_lines(tmp_path / "log") == [f"fresh {tmp_path / 'job'}"]


@pytest.mark.campaign
def test_a_run_outlives_the_kill_of_its_pool_and_a_second_call_waits_for_it(
    job, tmp_path, eventually, capsys
):
    one = job("one", "trainer.max_epochs=12", "checkpoint.every_steps=1")
    write_job(one.as_run(), tmp_path / "job.json")
    line = [sys.executable, "-c", PARENT, tmp_path / "job.json", tmp_path / "pool"]
    parent = subprocess.Popen(line, env=own_environment())
    eventually(lambda: (one.folder / "resume.ckpt").exists())
    parent.kill()
    parent.wait()
    assert is_locked(one.folder / ".lock")
    with Pool(tmp_path / "pool", 1, "pool") as pool:
        assert pool.run([one]) == 0
    assert "one: waiting for another process" in capsys.readouterr().out
    assert json.loads((one.folder / "result.json").read_text())["resumed_after_step"] is None


def test_of_two_starts_of_one_run_the_later_waits_and_reads(job, tmp_path):
    """Plans in folders of their own that have a run in common."""
    one = job("one", "trainer.max_steps=2")
    pools = [Pool(tmp_path / name, 2, name) for name in "ab"]
    with pools[0] as pool:
        assert pool.run([one, one._replace(label="again")]) == 0
    logs = sorted(path.name for path in (tmp_path / "a" / "logs").iterdir())
    assert logs[:1] == ["again.log"]
    with pools[1] as pool:
        assert pool.run([one]) == 0
    assert list((tmp_path / "b" / "logs").iterdir()) == []


def test_ranks_are_fresh_processes(job, tmp_path, monkeypatch):
    started = []

    def note(command):
        started.append(tuple(command))
        return fresh(["true"])

    monkeypatch.setattr("isotrain.jobs.process.fresh", note)
    start_job(job("one", "trainer.devices=2").as_run(), tmp_path / "job", tmp_path / "log").wait(30)
    assert started == [COMMAND]
