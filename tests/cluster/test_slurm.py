"""A study in Slurm whose runs, jobs and launcher are disturbed ends as one of joblib, by the byte.

What a run meets is in the file `act-<its number in the array>`; the metric of `mine.py` does it:
it raises when it is tried, and all else is in the second evaluation.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from isotrain.runs.files import read_records, read_result
from tools.kill_points import untimed

pytestmark = pytest.mark.cluster
STUDY = """
overrides: [encoder=tiny, encoder.width=16, source=demo, trainer.accelerator=cpu, report=false,
            data.batch_size=16, monitor.max_rows=64, 'metric=[isoscore]', monitor.map_rows=0,
            checkpoint.final=false, checkpoint.every_steps=2, trainer.max_steps=8,
            trainer.val_check_interval=4, data.n_dev=64, data.n_test=64,
            +metric.mine.function._target_=mine.f, +metric.mine.function._partial_=true]
tasks: {rte: [task=rte]}
methods:
  none: [isotropy=none]
  cluster_pca: [isotropy=cluster_pca]
baseline: none
seeds: [0, 1, 2, 3]
"""
MINE = """
import os, select, signal, socket
from pathlib import Path

calls = 0


def f(x):
    global calls
    calls += 1
    own = os.environ.get("SLURM_ARRAY_TASK_ID")
    act = Path(f"act-{own}")
    how = act.read_text() if act.exists() else ""
    if how == "raise":
        raise ValueError("no ink")
    if how and calls == CALLS:
        act.rename(f"at-{own}")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for_signal(Path(f"at-{own}"))
    return x.mean()


def wait_for_signal(at):
    ours, of_signals = socket.socketpair()
    of_signals.setblocking(False)
    before = signal.set_wakeup_fd(of_signals.fileno())
    while at.exists() and not select.select([ours], [], [], 0.1)[0]:
        pass
    signal.set_wakeup_fd(before)
"""
ACT_AT = 18  # call of the metric in the second evaluation: each has 10 to 16
TABLES = ("table.md", "table.csv", "table.tex", "runs.csv")
ISOTRAIN = (sys.executable, "-m", "isotrain")
RUN = (*ISOTRAIN, "run", "eight.yaml")
ON_SLURM = (*RUN, "--launcher", "slurm")
BY_HYDRA = (*ISOTRAIN, "train", "-m", "study=eight.yaml", "hydra/launcher=submitit_slurm")
PATIENCE_S = 1200  # CI ends them earlier
RAISES, DIES, CANCELLED, REQUEUED, LIMITED, RUNS = range(6)  # numbers in the array


def placed(folder):
    (folder / "eight.yaml").write_text(STUDY)
    (folder / "mine.py").write_text(MINE.replace("CALLS", str(ACT_AT)))
    return folder


def environment(folder, conf=""):
    paths = filter(None, [str(folder), os.environ.get("PYTHONPATH")])
    own = {"GIT_DIR": os.devnull, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths), "SLURM_CONF": str(conf)}


def runs(folder):
    """All that a run computes, by its folder."""
    return {
        path.parent.name: (
            read_result(path.parent)["scores"],
            [untimed(row) for row in read_records(path.with_name("metrics.jsonl"))],
            [file.read_bytes() for file in sorted(path.parent.glob("predictions/*"))],
        )
        for path in (folder / "runs" / "rte").glob("*/result.json")
        if read_result(path.parent)["status"] == "finished"
    }


def tables(folder):
    return {name: (folder / "runs/studies/eight" / name).read_bytes() for name in TABLES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of the study by joblib."""
    folder = placed(tmp_path_factory.mktemp("joblib"))
    more = {"cwd": folder, "env": environment(folder), "capture_output": True, "text": True}
    ended = subprocess.run([*RUN, "-j", "2"], **more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


class Cluster:
    """The study in Slurm: its calls, and its jobs."""

    def __init__(self, folder, conf):
        self.folder, self.env = folder, environment(folder, conf)
        self.started = []

    def start(self, log, line=ON_SLURM):
        with (self.folder / log).open("w") as file:
            more = {"stdout": file, "stderr": file, "cwd": self.folder, "env": self.env}
            self.started.append(subprocess.Popen(line, process_group=0, **more))
        return self.started[-1]

    def says(self, *line):
        ended = subprocess.run(line, capture_output=True, text=True, cwd=self.folder, env=self.env)
        return ended.stdout + ended.stderr

    def act(self, number, how):
        (self.folder / f"act-{number}").write_text(how)

    def at(self, number):
        return (self.folder / f"at-{number}").exists()

    def log(self, name):
        return (self.folder / name).read_text()

    def jobs(self):
        """State of each job that Slurm remembers, by id."""
        lines = self.says("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)

    def wait_for(self, condition, what):
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until, f"{what}: {self.says('squeue', '-r', '-t', 'all')}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def disturbed(slurm_conf, tmp_path_factory):
    """The study in Slurm by three calls, two of them ended, and what was seen meanwhile."""
    it = Cluster(placed(tmp_path_factory.mktemp("study")), slurm_conf)
    try:
        disturb(it)
        yield it
    finally:
        for process in it.started:
            process.kill()
            process.wait()


def disturb(it):
    it.act(RAISES, "raise")
    it.act(DIES, "kill")
    for number in (CANCELLED, REQUEUED, LIMITED, RUNS):
        it.act(number, "wait")
    first = it.start("first")
    it.wait_for(lambda: "submitted to Slurm" in it.log("first"), "the first call submits")
    it.array = re.search(r"submitted to Slurm: (\d+)", it.log("first"))[1]
    it.wait_for(lambda: it.at(CANCELLED) and it.at(REQUEUED), "two runs wait")
    it.says("scancel", f"{it.array}_{CANCELLED}")
    it.says("scontrol", "requeue", f"{it.array}_{REQUEUED}")
    it.wait_for(lambda: it.at(LIMITED) and it.at(RUNS), "two more wait")
    it.wait_for(lambda: it.log("first").count("\nfailed") == 3, "three failures are told")
    os.killpg(first.pid, signal.SIGINT)
    it.code = first.wait(timeout=PATIENCE_S)
    it.left = it.jobs()
    it.status = it.says(*ISOTRAIN, "status", "eight")
    (it.folder / f"act-{RAISES}").unlink()
    second = it.start("second")
    it.wait_for(lambda: "submitted to Slurm" in it.log("second"), "the second call submits")
    second.kill()
    second.wait()
    third = it.start("third", BY_HYDRA)
    it.wait_for(lambda: "submitted to Slurm" in it.log("third"), "the third call attaches")
    it.jobs_of_all = it.jobs()
    own = f"JobId={it.array}_{LIMITED}"
    minutes = it.says("squeue", "-h", "-j", own[6:], "-o", "%M").split(":")[-2]
    it.says("scontrol", "update", own, f"TimeLimit={int(minutes) + 2}")
    it.wait_for(lambda: "Restarts=1" in it.says("scontrol", "show", "job", own[6:]), "limit")
    it.says("scontrol", "update", own, "TimeLimit=60")
    (it.folder / f"at-{RUNS}").unlink()
    it.code_of_third = third.wait(timeout=PATIENCE_S)


def record(it, number):
    """The record of a run by its number in the first array."""
    jobs = json.loads((it.folder / "runs/studies/eight/slurm.json").read_text())["jobs"]
    seed, method = divmod(number, 2)
    name = f"rte-{('none', 'cluster_pca')[method]}-seed{seed}-"
    (digest,) = [key.removeprefix(name) for key in jobs if key.startswith(name)]
    (path,) = (it.folder / "runs" / "rte").glob(f"*-{digest}")
    return read_result(path)


def test_it_ends_with_the_bytes_of_joblib(disturbed, whole):
    assert disturbed.code_of_third == 0, disturbed.log("third")
    assert len(runs(whole)) == 8
    assert runs(disturbed.folder) == runs(whole)
    assert tables(disturbed.folder) == tables(whole)


def test_records_name_launcher_node_and_job(disturbed, whole):
    places = [record(disturbed, number)["place"] for number in range(8)]
    assert {own["launcher"] for own in places} == {"submitit_slurm"}
    assert {own["host"] for own in places} == {"n1", "n2"}
    assert places[7]["job"] == f"{disturbed.array}_7"
    of_joblib = [read_result(path.parent) for path in whole.glob("runs/rte/*/result.json")]
    assert {own["place"]["launcher"] for own in of_joblib} == {"joblib"}


def test_each_failure_is_told_and_stops_no_other(disturbed):
    said = disturbed.log("first")
    assert re.search(r"failed rte-none-seed0: .*no ink; runs/studies/eight/logs/", said)
    killed = f"failed rte-cluster_pca-seed0: FAILED: Slurm ended job {disturbed.array}_{DIES} "
    assert killed in said
    own = f"failed rte-none-seed1: CANCELLED: Slurm ended job {disturbed.array}_{CANCELLED} "
    assert re.search(re.escape(own) + r"on n[12]; .*_log\.err", said)


def test_ctrl_c_leaves_the_jobs_and_says_so(disturbed):
    assert disturbed.code == 128 + signal.SIGINT
    last = disturbed.log("first").splitlines()[-1]
    assert last.startswith("study eight: stopped; the same command goes on; ")
    assert last.endswith(f"scancel {disturbed.array} cancels them")
    assert disturbed.left[f"{disturbed.array}_{RUNS}"] == "RUNNING"


def test_the_same_command_submits_only_what_is_not_there(disturbed):
    for call, n_new in (("second", 3), ("third", 0)):
        said = disturbed.log(call)
        n_left = int(re.search(r"(\d) to do", said)[1])
        assert f"{n_new} runs submitted to Slurm, {n_left - n_new} were there before: " in said
    arrays = {job.partition("_")[0] for job in disturbed.jobs_of_all}
    assert len(arrays) == 2
    done = [line for line in disturbed.log("third").splitlines() if line.startswith("done ")]
    assert len(done) == n_left


def test_a_requeued_run_and_one_at_its_time_limit_go_on(disturbed):
    assert record(disturbed, REQUEUED)["resumed_after_step"] == 4
    assert record(disturbed, LIMITED)["resumed_after_step"] == 4
    assert record(disturbed, RUNS)["resumed_after_step"] is None


def test_status_tells_what_slurm_says(disturbed):
    job = f"rte-cluster_pca-seed2: job {disturbed.array}_{RUNS} on n"
    assert re.search(re.escape(job) + r"[12], step [34] of 8, \d+:\d+ left; ", disturbed.status)
    assert re.search(r"pending in Slurm \(\w+\): .*rte-none-seed3", disturbed.status)
    assert re.search(r"rte-none-seed1: job \S+ on n[12], .*CANCELLED", disturbed.status)
