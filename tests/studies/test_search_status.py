"""How far a search is: trials by state, the steps of those at work, and the time left."""

import json

from optuna.trial import TrialState

from isotrain.config.compose import recorded
from isotrain.runs.record import owned
from isotrain.studies.search_plan import trial_jobs
from isotrain.studies.search_status import status_of_search
from isotrain.studies.status import show
from tests.studies.trials import next_trial, opened


def leave(plan, taken, number=0, status="running", steps=()):
    """What the run of a trial has on disk."""
    job = trial_jobs(plan, taken.values)[0][number].on_data("demo-v1-seed0")
    folder = job.folder
    folder.mkdir(parents=True)
    record = {
        "method": job.method,
        "config": recorded(job.cfg),
        "status": status,
        "monitor": "val/accuracy",
        "scores": {"val/accuracy": 0.5},
    }
    record |= {"n_rows": {"train": 320, "dev": 9}}
    (folder / "result.json").write_text(json.dumps(record))
    rows = "".join(json.dumps({"step": step}) + "\n" for step in steps)
    (folder / "metrics.jsonl").write_text(rows)
    return folder


def told(plan, study, capsys, n_jobs=1):
    code = show(lambda: status_of_search(plan, study, n_jobs), False, False)
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[2:-1] if line.split()}
    return code, cells, lines[-1]


def test_trials_by_state_and_the_steps_of_those_at_work(few, capsys):
    few.says(seeds="[0, 1]", n_trials=9)
    plan = few.plan("trainer.max_epochs=2", "data.batch_size=32")
    with opened(plan) as study:
        taken = [next_trial(study, plan) for _ in range(6)]
        for number in range(3):
            study.tell(taken[number].trial, 0.5)
        taken[3].trial.set_user_attr("bad", "degenerate")
        study.tell(taken[3].trial, state=TrialState.PRUNED)
        leave(plan, taken[4], number=0, status="finished")
        with owned(leave(plan, taken[4], number=1, steps=[0, 5]), plan.folder.parents[1]):
            code, cells, line = told(plan, study, capsys)
        assert cells == {
            "complete": "0–2",
            "degenerate": "3",
            "running": "4 (seed 1, step 5 of 20)",
            "waiting": "5 (seed 0), 3 not made yet",
        }
        assert code == 0
        assert line.startswith(
            "search few: 9 trials, 3 complete, 1 degenerate, 1 running, 4 waiting; about 0:"
        )
        assert line.endswith(" left, 1 at a time; not running: `isotrain run` starts what is left")
        study.tell(taken[4].trial, state=TrialState.FAIL)
        code, cells, line = told(plan, study, capsys, n_jobs=9)
        assert (code, cells["failed"]) == (1, "4")
        assert line.endswith("4 at a time; not running: `isotrain run` starts what is left")


def test_points_of_a_grid_that_wait(few, capsys):
    few.says(space="{optimizer.lr: [0.001, 0.01, 0.1]}", sampler="grid", n_trials=3)
    plan = few.plan()
    with opened(plan) as study:
        one = next_trial(study, plan)
        _, cells, line = told(plan, study, capsys)
        assert cells == {"waiting": "0–2"}
        assert line.startswith(
            "search few: 3 trials, 0 complete, 3 waiting; time left unknown: none has ended"
        )
        study.tell(one.trial, state=TrialState.FAIL)
        assert "1 failed, 2 waiting" in told(plan, study, capsys)[2]
