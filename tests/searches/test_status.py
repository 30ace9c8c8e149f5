"""How far a search is: trials by state, the steps of those at work, and the time left."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from isotrain.launch import watch
from isotrain.studies.storage import next_trial, opened
from isotrain.tune.status import At, seconds_left, show_status
from optuna.trial import TrialState

from isotrain.config.compose import run_folder
from isotrain.studies.search_plan import runs_of


def leave(plan, taken, number=0, status="running", steps=()):
    """What the run of a trial has on disk."""
    job = runs_of(plan, taken.values)[0][number]
    folder = run_folder(job.cfg, job.arm)
    folder.mkdir(parents=True)
    record = {"status": status, "monitor": "val/accuracy", "scores": {"val/accuracy": 0.5}}
    record |= {"n_rows": {"train": 320, "dev": 9}}
    (folder / "result.json").write_text(json.dumps(record))
    rows = "".join(json.dumps({"step": step}) + "\n" for step in steps)
    (folder / "metrics.jsonl").write_text(rows)


def told(plan, study, capsys, n_jobs=1):
    code = show_status(plan, study, n_jobs)
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[2:-1] if line.split()}
    return code, cells, lines[-1]


def test_trials_by_state_and_the_steps_of_those_at_work(fake, capsys):
    fake.says(seeds="[0, 1]", n_trials=9)
    plan = fake.plan("trainer.max_epochs=2", "data.batch_size=32")
    with opened(plan) as study:
        taken = [next_trial(study, plan) for _ in range(6)]
        for number in range(3):
            study.tell(taken[number].trial, 0.5)
        taken[3].trial.set_user_attr("bad", "degenerate")
        study.tell(taken[3].trial, state=TrialState.PRUNED)
        leave(plan, taken[4], number=0, status="finished")
        leave(plan, taken[4], number=1, steps=[0, 5])
        os.close(taken[5].lock)
        code, cells, line = told(plan, study, capsys)
        assert cells == {
            "complete": "0-2",
            "degenerate": "3",
            "running": "4 (seed 1, step 5 of 20)",
            "interrupted": "5 (seed 0)",
        }
        assert code == 0
        assert line.startswith(
            "search few: 9 trials, 3 complete, 1 degenerate, 1 running, 1 interrupted, 3 waiting; "
            "about 0:"
        )
        assert line.endswith(" left, 1 at a time")
        study.tell(taken[4].trial, state=TrialState.FAIL)
        code, cells, line = told(plan, study, capsys, n_jobs=9)
        assert (code, cells["failed"]) == (1, "4")
        assert line.endswith("4 at a time; no process is at it, and `isotrain run` goes on")
        for one in taken[:5]:
            os.close(one.lock)


def test_points_of_a_grid_that_wait(fake, capsys):
    fake.says(space="{optimizer.lr: [0.001, 0.01, 0.1]}", sampler="grid", n_trials=3)
    plan = fake.plan()
    with opened(plan) as study:
        one = next_trial(study, plan)
        _, cells, line = told(plan, study, capsys)
        assert cells == {"running": "0 (starting)"}
        assert line == (
            "search few: 3 trials, 0 complete, 1 running, 2 waiting; "
            "time left unknown: none has ended, 1 at a time"
        )
        study.tell(one.trial, state=TrialState.FAIL)
        study.enqueue_trial({"optimizer.lr": "0.001"}, user_attrs={"point": one.values})
        assert "1 failed, 3 waiting" in told(plan, study, capsys)[2]
        os.close(one.lock)


def test_watch_ends_when_every_trial_has(fake, monkeypatch, capsys):
    plan = fake.says(n_trials=1).plan()
    with opened(plan) as study:
        one, looks = next_trial(study, plan), []

        def look(_):
            looks.append(1)
            if len(looks) == 2:
                study.tell(one.trial, 0.5)

        monkeypatch.setattr(watch, "is_watched", lambda: True)
        monkeypatch.setattr(watch.time, "sleep", look)
        assert show_status(plan, study, 1, watch=True) == 0
        assert show_status(plan, study, 1, watch=True) == 0
        assert len(looks) == 2
        assert "search few: 1 trials, 1 complete" in capsys.readouterr().out
        os.close(one.lock)


def trial(state, seconds):
    now = datetime(2026, 1, 1)
    took = timedelta(seconds=seconds)
    return SimpleNamespace(state=state, duration=(now + took) - now)


def test_time_left_by_the_median_of_what_ended():
    ended = [trial(TrialState.COMPLETE, 100), trial(TrialState.PRUNED, 60)]
    ended += [trial(TrialState.COMPLETE, 9_000), trial(TrialState.FAIL, 1)]
    left = [At(share_left=0.5), At(), At()]
    assert seconds_left(ended, left, 1) == pytest.approx(250)
    assert seconds_left(ended, left, 2) == pytest.approx(125)
    assert seconds_left(ended, left, 9) == pytest.approx(100), "one has nobody to help it"
    assert seconds_left(ended[-1:], left, 1) is None
