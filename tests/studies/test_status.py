"""What `isotrain status` tells of a study: states, steps, reasons and the time left."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from isotrain.cli import main
from isotrain.config.compose import RunId
from isotrain.jobs.archive import Job
from isotrain.runs.record import owned
from isotrain.studies import status
from isotrain.studies.status import State, show, state_of, status_of, status_table
from tests.processes import held

CFG = OmegaConf.create(
    {"trainer": {"max_epochs": 2, "max_steps": -1}, "data": {"batch_size": 10}, "seed": 0}
)
ID = RunId("wic", "none", "", "")
HEADINGS = ("task", "method")


def shown(jobs, folder, n_jobs, watch=False):
    return show(lambda: status_of("study s", HEADINGS, jobs, folder, n_jobs), watch, False)


def at_work(lock, n):
    """What a call writes into its lock."""
    lock.write_text(json.dumps({"pid": os.getpid(), "n": n, "host": "here"}))


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
        return Job(task, method, seed, CFG, ID, folder, ())

    return make


@pytest.fixture
def studied(tmp_path):
    """The folder of the study, with its logs."""
    (tmp_path / "study" / "logs").mkdir(parents=True)
    return tmp_path / "study"


def record(state, **more):
    return {"status": state, "n_rows": {"train": 100, "dev": 9}, **more}


FINISHED = record("finished", monitor="val/a", scores={"val/a": 0.5}, timings_s={"total": 30.0})


def test_every_state(job, studied):
    waiting = job(0)
    finished = job(1, result=FINISHED)
    resumed = job(2, result={**FINISHED, "resumed_after_step": 5})
    running = job(3, result=record("running"), rows=12)
    killed = job(4, result=record("running"), rows=12, checkpoint=8)
    stopped = job(5, result=record("interrupted"), rows=12)
    failed = job(6, result=record("failed", error="OSError: full\nmore"), checkpoint=4)
    refused = job(7)
    (studied / "logs" / f"{refused.name}.log").write_text("why\nisotrain: exit code 2\n")
    half = job(8)
    (half.folder / "result.json").write_text('{"status": "fin')
    with owned(running.folder, running.folder.parent):
        jobs = (waiting, finished, resumed, running, killed, stopped, failed, refused, half)
        found = [state_of(own, studied) for own in jobs]
    assert [s.state for s in found] == [
        *("waiting", "finished", "finished", "running", "interrupted", "interrupted"),
        *("failed", "failed", "waiting"),
    ]
    assert [(s.step, s.n_steps) for s in found[3:7]] == [(12, 20), (8, 20), (None, 20), (4, 20)]
    assert [s.took_s for s in found[:3]] == [None, 30.0, None]
    assert found[6].reason == "OSError: full"
    assert found[7].reason == "exit code 2; logs/wic-none-seed7.log tells why"
    assert f"{half.folder / 'result.json'} is damaged" in found[8].reason
    assert "done again" in found[8].reason


@pytest.mark.parametrize("result", [None, record("interrupted")])
def test_a_run_whose_process_is_only_starting_is_running(job, studied, result):
    own = job(0, result=result)
    log = studied / "logs" / f"{own.name}.log"
    with held(log):
        found = state_of(own, studied)
        assert found.state == "running"
        assert status.at_step(found.step, found.n_steps, is_running=True) == "starting"
    assert state_of(own, studied).state == ("interrupted" if result else "waiting")


def test_runs_at_a_time_are_those_of_the_call_at_work(job, studied, capsys):
    jobs = [job(k, result=FINISHED if k < 2 else None) for k in range(7)]

    def told(n_jobs):
        shown(jobs, studied, n_jobs, watch=False)
        return capsys.readouterr().out.rpartition("study s: ")[2]

    assert "about 2:30 left, 1 at a time; not running" in told(None)
    assert "about 0:50 left, 3 at a time; not running" in told(3)
    assert "about 0:30 left, 5 at a time" in told(9)  # there are no more
    with held(studied / "lock"):
        at_work(studied / "lock", 2)
        assert told(3) == "7 runs, 2 finished, 5 waiting; about 1:15 left, 2 at a time\n"
    assert "3 at a time" in told(3)


def states(*given):
    """(task, state, step, took_s) as states of a training of 100 steps."""
    return [
        State(
            *(Job(task, "none", k, CFG, ID, Path(task) / "x", ()), state, step, 100, "", took),
            is_over=state == "finished",
        )
        for k, (task, state, step, took) in enumerate(given)
    ]


def left_s(states, n):
    return status_table("s", HEADINGS, states, n, is_at_work=False).content["seconds_left"]


def test_time_left_by_the_mean_of_the_same_task():
    done = [("a", "finished", None, 50.0), ("a", "finished", None, 150.0)]
    done += [("b", "finished", None, 10.0)]
    left = [("a", "running", 25, None), ("a", "waiting", None, None), ("b", "failed", None, None)]
    assert left_s(states(*done, *left), 1) == pytest.approx(75 + 100 + 10)
    assert left_s(states(*done, *left), 2) == pytest.approx(100)  # the longest, alone
    more = [("a", "interrupted", 50, None)] * 3
    assert left_s(states(*done, *left, *more), 2) == pytest.approx((185 + 150) / 2)
    # A task of which nothing has finished: the mean over the others.
    assert left_s(states(*done, ("c", "waiting", None, None)), 1) == pytest.approx(70)
    assert left_s(states(("a", "running", 5, None)), 1) is None


def test_what_failed_in_the_call_at_work_is_left_to_the_next_call(job, studied):
    failed = record("failed", error="OSError: full")
    jobs = [job(0, result=FINISHED), *(job(k, result=failed) for k in (1, 2))]
    for own, ended_at in zip(jobs[1:], (1e9 - 5, 1e9 + 5), strict=True):  # by another call, by this
        log = studied / "logs" / f"{own.name}.log"
        log.touch()
        os.utime(log, (ended_at, ended_at))

    def seconds_left():
        return status_of("s", HEADINGS, jobs, studied, None).content["seconds_left"]

    with held(studied / "lock"):
        at_work(studied / "lock", 1)
        os.utime(studied / "lock", (1e9, 1e9))
        assert seconds_left() == 30
    assert seconds_left() == 60


def test_the_table(capsys):
    found = states(*[("a", "finished", None, 60.0)] * 4, ("a", "running", 40, None))
    found += [State(s.job._replace(seed=9), "failed", reason="OSError: full") for s in found[:1]]
    for part in status_table("study s", HEADINGS, found, 3, is_at_work=False).drawn.renderables:
        status.say(part)
    printed = capsys.readouterr().out
    assert re.search(r"a +none +0–3 +4 \(step 40 of 100\) +9 ", printed)
    assert "a-none-seed9: failed; OSError: full" in printed
    assert "study s: 6 runs, 4 finished, 1 running, 1 failed; about 1:00 left, 2 at a time" in (
        printed
    )
    assert "not running" in printed


def test_status_of_a_study_at_work_writes_nothing(fake, monkeypatch, eventually, capsys):
    on_hold = ["rte-mean-seed0", "rte-none-seed1"]
    monkeypatch.setenv("HOLD", ",".join(on_hold))
    parent = fake.parent(n_jobs=2)
    eventually(lambda: len(fake.noted("start")) == 3)
    before = {p: p.stat().st_mtime_ns for p in fake.runs.rglob("*")}
    line = ["status", str(fake.file), *fake.overrides, "--jobs=3"]
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert "6 runs, 1 finished, 2 running, 3 waiting" in printed
    assert "0 (starting)" in printed
    assert "1 (starting)" in printed
    assert "2 at a time" in printed
    assert "not running" not in printed
    assert {p: p.stat().st_mtime_ns for p in fake.runs.rglob("*")} == before
    parent.kill()
    parent.wait()
    assert main(line) == 0
    assert "2 running" in capsys.readouterr().out  # nobody stopped them
    for name in on_hold:
        os.kill(fake.pids()[name], signal.SIGKILL)
    parent.communicate()
    eventually(lambda: main(line) == 0 and "not running" in capsys.readouterr().out)
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert "6 runs, 1 finished, 5 waiting" in printed
    assert "3 at a time" in printed


def test_status_before_anything_ran_and_of_unknown_methods(fake, capsys):
    assert main(["status", str(fake.file), *fake.overrides]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "6 runs, 0 finished, 6 waiting; time left unknown" in printed
    assert printed.endswith("not running: `isotrain run` starts what is left")
    assert not fake.runs.exists()
    for action in ("status", "report"):
        assert main([action, str(fake.file), *fake.overrides, "isotropy=clipp"]) == 2
        assert "isotropy=clipp does not exist; did you mean clip?" in capsys.readouterr().err


def test_watch_ends_when_nothing_is_at_work(job, studied, monkeypatch, capsys):
    own, looks = job(0, result=record("interrupted")), []

    def look(_):
        looks.append(1)
        if len(looks) == 2:
            (own.folder / "result.json").write_text(json.dumps(FINISHED))
            call.__exit__(None, None, None)

    monkeypatch.setattr(status, "is_watched", lambda: True)
    monkeypatch.setattr(status.time, "sleep", look)
    call = held(studied / "lock")
    call.__enter__()
    at_work(studied / "lock", 1)
    assert shown([own], studied, 1, watch=True) == 0
    assert len(looks) == 2
    assert "1 run, 1 finished" in capsys.readouterr().out
    (own.folder / "result.json").write_text(json.dumps(record("failed")))
    assert shown([own], studied, 1, watch=True) == 1
    assert len(looks) == 2
