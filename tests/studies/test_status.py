"""What `isotrain status` tells of a study: states, steps, reasons and the time left."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from isotrain.cli import main
from isotrain.commands.plans import folder_of
from isotrain.console import say
from isotrain.runs.record import owned
from isotrain.runs.stored import PlanError
from isotrain.studies import status
from isotrain.studies.call import Job
from isotrain.studies.status import FAILED_LINE, State, seconds_left, state_of

CONFIG = {"task": {"_target_": "a.b"}, "data": {"batch_size": 10}}
CONFIG |= {"trainer": {"max_epochs": 2, "max_steps": -1}}


@pytest.fixture
def job(tmp_path):
    """Makes a job, with a record and files in its folder."""

    def make(seed=0, task="wic", method="none", result=None, rows=None, checkpoint=None):
        folder = tmp_path / task / f"{method}-{seed}"
        folder.mkdir(parents=True)
        if result is not None:
            (folder / "result.json").write_text(json.dumps(result))
        if rows is not None:
            (folder / "metrics.jsonl").write_text(f'{{"step": {rows}, "x": 1}}\n')
        if checkpoint is not None:
            (folder / "resume.ckpt").touch()
            (folder / "resume.json").write_text(json.dumps({"step": checkpoint}))
        return Job(task, method, seed, folder)

    return make


@pytest.fixture
def studied(tmp_path):
    """The folder of the study, with its logs."""
    (tmp_path / "study" / "logs").mkdir(parents=True)
    return tmp_path / "study"


def record(state, **more):
    n_rows = {"train": 100, "dev": 9}
    return {"status": state, "n_rows": n_rows, "config": CONFIG, **more}


FINISHED = record("finished", monitor="val/a", scores={"val/a": 0.5}, timings_s={"total": 30.0})


def test_every_state(job, studied):
    waiting = job(0)
    finished = job(1, result=FINISHED)
    resumed = job(2, result={**FINISHED, "resumed_after_step": 5})
    running = job(3, result=record("running"), rows=12)
    killed = job(4, result=record("running"), rows=12, checkpoint=8)
    stopped = job(5, result=record("interrupted"), rows=12)
    failed = job(6, result=record("failed", error="OSError: full\nmore"), checkpoint=4)
    rejected = job(7)
    (studied / "logs" / f"{rejected.log}.log").write_text(f"why\n{FAILED_LINE}exit\n")
    half = job(8)
    (half.folder / "result.json").write_text('{"status": "fin')
    with owned(running.folder):
        jobs = (waiting, finished, resumed, running, killed, stopped, failed, rejected, half)
        found = [state_of(own, studied) for own in jobs]
    assert [s.state for s in found] == [
        *("waiting", "finished", "finished", "running", "interrupted", "interrupted"),
        *("failed", "failed", "waiting"),
    ]
    assert [(s.step, s.n_steps) for s in found[3:7]] == [(12, 20), (8, 20), (None, 20), (4, 20)]
    assert [s.took_s for s in found[:3]] == [None, 30.0, None]
    assert found[6].reason == "OSError: full"
    assert found[7].reason == "exit"
    assert f"{half.folder / 'result.json'} is damaged" in found[8].reason


def states(*given):
    """(task, state, step, took_s) as states of a training of 100 steps."""
    return [
        State(Job(task, "none", k, Path(task) / "x"), state, step, 100, "", took)
        for k, (task, state, step, took) in enumerate(given)
    ]


def test_time_left_by_the_mean_of_finished_runs():
    done = [("a", "finished", None, 50.0), ("b", "finished", None, 150.0)]
    left = [("a", "running", 25, None), ("a", "waiting", None, None), ("b", "failed", None, None)]
    assert seconds_left(states(*done, *left), 1) == pytest.approx(75 + 100 + 100)
    assert seconds_left(states(*done, *left), 2) == pytest.approx(275 / 2)
    assert seconds_left(states(("a", "running", 5, None)), 1) is None


def test_a_failure_without_a_record_is_reported_from_the_last_line_of_its_log(job, studied):
    own = job(0)
    log = studied / "logs" / f"{own.log}.log"
    log.write_text(f"{FAILED_LINE}ValueError: before\nstarted again\n")
    assert state_of(own, studied).state == "waiting"
    log.write_text(f"started\n{FAILED_LINE}ValueError: the reason\n")
    found = state_of(own, studied)
    assert (found.state, found.reason) == ("failed", "ValueError: the reason")
    with owned(own.folder):
        assert state_of(own, studied).state == "running"
    other = own._replace(folder=own.folder.with_name("none-fedcba9876"))
    assert state_of(other, studied).state == "waiting", "defined otherwise since then"


def test_a_plan_is_found_by_the_name_that_its_file_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("name: other\n")
    (tmp_path / "runs" / "studies" / "other").mkdir(parents=True)
    assert folder_of("mine.yaml") == folder_of("other") == Path("runs/studies/other")
    with pytest.raises(PlanError, match="mine is no folder, and there is no runs/studies/mine or"):
        folder_of("mine")


def plan_of(found):
    """A plan of the runs of some states."""
    methods = dict.fromkeys(s.job.method for s in found)
    study = SimpleNamespace(tasks=dict.fromkeys(s.job.task for s in found), methods=methods)
    jobs = [s.job for s in found]
    return SimpleNamespace(kind="study", name="s", folder=Path("none"), study=study, jobs=jobs)


def test_the_table(capsys, monkeypatch):
    found = states(*[("a", "finished", None, 60.0)] * 4, ("a", "running", 40, None))
    found += [State(s.job._replace(seed=9), "failed", reason="OSError: full") for s in found[:1]]
    of = {s.job.seed: s for s in found}
    monkeypatch.setattr(status, "state_of", lambda job, folder: of[job.seed])
    shown = status.status_of(plan_of(found))
    for part in shown.lines:
        say(part)
    printed = capsys.readouterr().out
    assert re.search(r"a +none +0–3 +4 \(step 40 of 100\) +9 ", printed)
    assert "a-none-seed9: failed; OSError: full" in printed
    assert printed.endswith("study s: 6 runs, 4 finished, 1 running, 1 failed; about 1:36 left\n")
    assert shown.has_failed


def test_status_of_a_study_at_work_writes_nothing(fake, capsys):
    looks = []

    def look():
        (job,) = (job for job in fake.plan.jobs if job.name == "rte-none-seed1")
        with owned(job.folder):
            before = {path: path.stat().st_mtime_ns for path in fake.runs.rglob("*")}
            looks.append(status.status_of(fake.plan))
            assert {path: path.stat().st_mtime_ns for path in fake.runs.rglob("*")} == before

    fake.failing = {("none", 1): look, ("mean", 1): ValueError("no")}
    assert fake.run() == 1
    assert "4 runs, 2 finished, 1 running, 1 waiting; about" in looks[0].lines[-1]
    assert not looks[0].has_failed
    assert "none is running" not in looks[0].lines[-1]
    capsys.readouterr()
    assert fake.main("status", str(fake.folder)) == 1
    printed = capsys.readouterr().out
    assert "rte-mean-seed1: failed; ValueError: no\n" in printed
    assert "study few: 4 runs, 3 finished, 1 failed; " in printed
    assert "none is running: the same command goes on" in printed
    assert fake.main("status", str(fake.folder), "--json") == 1
    runs = json.loads(capsys.readouterr().out)["runs"]
    states = {(run["method"], run["seed"]): run["status"] for run in runs}
    expected = {(m, s): "finished" for m in ("none", "mean") for s in (0, 1)}
    assert states == expected | {("mean", 1): "failed"}
    assert {run["folder"] for run in runs} == {str(job.folder) for job in fake.plan.jobs}
    assert all(bool(run["scores"]) == (run["status"] == "finished") for run in runs)


def test_a_study_is_named_from_its_working_folder(fake, capsys, monkeypatch):
    fake.says(seeds="[0]")
    assert fake.run() == 0
    monkeypatch.chdir(fake.runs.parent)
    for target in ("few", "few.yaml", str(fake.folder)):
        capsys.readouterr()
        assert fake.main("status", target) == 0
        assert "study few: 2 runs, 2 finished\n" in capsys.readouterr().out
    assert fake.main("status", "fewer") == 2
    said = capsys.readouterr().err
    assert "fewer is no folder, and there is no runs/studies/fewer" in said
    assert "; nearest: runs/studies/few\n" in said


@pytest.mark.parametrize(
    ("target", "nearest"),
    [
        ("runs/wic/nne-0123", "runs/wic/none-5a31"),
        ("wic/nne-0123", "runs/wic/none-5a31"),
        ("runs/wci/none-5a31", "runs/wic"),
        ("smok", "smoke (isotrain run smoke starts it)"),
        ("smoke", "smoke (isotrain run smoke starts it)"),
        ("few.yml", "runs/studies/fewer"),
    ],
)
def test_what_is_not_there_is_told_with_the_nearest_that_is(
    tmp_path, monkeypatch, capsys, target, nearest
):
    monkeypatch.chdir(tmp_path)
    for name in ("wic/none-5a31", "wic/clip-3fda", "studies/fewer"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert main(["status", target]) == 2
    assert f"; nearest: {nearest}\n" in capsys.readouterr().err
    assert main(["status", "xyzzy"]) == 2
    assert "nearest" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "report", "evaluate", "export"])
def test_a_run_that_is_not_there_is_told_with_the_nearest_one(
    tmp_path, monkeypatch, capsys, command
):
    monkeypatch.chdir(tmp_path)
    for name in ("clip-3fdaf3e0a4", "none-5a31"):
        (tmp_path / "runs" / "wic" / name).mkdir(parents=True)
    assert main([command, "runs/wic/clip-000"]) == 2
    assert "; nearest: runs/wic/clip-3fdaf3e0a4\n" in capsys.readouterr().err
