"""Trials whose runs fail, and those whose values are to blame: told apart, and what follows."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState

DONE = [f"trial-{number}-seed0" for number in range(4)]


def states(fake):
    return [trial.state for trial in fake.trials()]


def test_a_failure_is_a_failed_trial_with_its_reason_after_it_was_tried_once_more(
    fake, monkeypatch, capsys
):
    monkeypatch.setenv("FAIL", DONE[1])
    assert fake.run(n_trials=2) == 1
    assert fake.noted("start") == [DONE[0], DONE[1], DONE[1]]
    assert states(fake) == [TrialState.COMPLETE, TrialState.FAIL]
    assert fake.trials()[1].user_attrs["why"] == (
        "trial-1-seed0: exit code 3; the reason | in words; also when it was tried once more"
    )
    printed = capsys.readouterr().out
    log = fake.folder / "logs" / "trial-1-seed0.log"
    assert f"exit code 3; {log} ends:\n    first line\n    the reason | in words\n" in printed
    assert "trial-1-seed0 is tried once more" in printed
    table = (fake.folder / "table.md").read_text()
    assert "Trial 0 is the best of 1 on dev" in table
    assert r"the reason \| in words" in table


def test_what_is_refused_is_not_tried_again(fake, monkeypatch):
    monkeypatch.setenv("FAIL", DONE[0])
    monkeypatch.setenv("CODE_OF_FAILURE", "2")
    assert fake.run(n_trials=2) == 1
    assert fake.noted("start") == DONE[:2]
    assert fake.trials()[0].user_attrs["why"].endswith("exit code 2; the reason | in words")


def test_a_run_that_was_killed_goes_on_and_its_trial_is_complete(fake, monkeypatch):
    monkeypatch.setenv("KILLED_ONCE", DONE[0])
    assert fake.run(n_trials=1) == 0
    assert fake.noted("start") == [DONE[0], DONE[0]]
    assert states(fake) == [TrialState.COMPLETE]


def test_trials_whose_values_are_bad_are_told_to_the_sampler_and_stop_no_search(
    fake, monkeypatch, capsys
):
    monkeypatch.setenv("DIVERGE", DONE[0])
    monkeypatch.setenv("NAN", DONE[1])
    monkeypatch.setenv("ALIKE", DONE[2])
    assert fake.run() == 0
    assert fake.noted("start") == DONE, "nothing is tried again"
    assert states(fake) == [TrialState.PRUNED] * 3 + [TrialState.COMPLETE]
    bad = [sum(trial.constraints.values()) > 0 for trial in fake.trials()]
    assert bad == [True, True, True, False]
    table = (fake.folder / "table.md").read_text()
    assert "4 of 4 trials: 1 complete, 1 degenerate, 2 diverged." in table
    assert [trial.user_attrs.get("why", "") for trial in fake.trials()] == [
        "trial-0-seed0: exit code 1; the loss is nan after 3 steps",
        "val/accuracy of trial-1-seed0 is not finite",
        "trial-2-seed0: all one class",
        "",
    ]
    assert "degenerate trial 2: trial-2-seed0: all one class" in capsys.readouterr().out


def test_points_of_a_grid_whose_trial_failed_are_tried_again_by_a_later_call(
    fake, monkeypatch, capsys
):
    fake.says(space="{optimizer.lr: [0.001, 0.01, 0.1]}", sampler="grid", n_trials=3)
    monkeypatch.setenv("FAIL", DONE[1])
    assert fake.run() == 1
    assert states(fake) == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert "3 of 3 points, 3 trials: 2 complete, 1 failed." in capsys.readouterr().out
    assert fake.run() == 0
    assert "points whose trial failed, tried again: 1" in capsys.readouterr().out
    last = fake.trials()[-1]
    assert (len(fake.trials()), last.state) == (4, TrialState.COMPLETE)
    assert last.params == {"optimizer.lr": "0.01"}
    assert fake.run() == 0
    assert len(fake.trials()) == 4, "every point has its trial"
    assert "3 of 3 points, 4 trials: 3 complete, 1 failed." in capsys.readouterr().out


def test_a_run_that_another_command_is_at_is_waited_for(fake, monkeypatch, capsys):
    asked = []

    def is_owned(folder):
        asked.append(folder)
        return len(asked) < 60

    monkeypatch.setattr("isotrain.jobs.pool.is_owned", is_owned)
    assert fake.run(n_trials=1) == 0
    assert capsys.readouterr().out.count("trial-0-seed0: waiting for another process") == 1
    assert fake.noted("start") == DONE[:1]


def test_a_damaged_record_is_told_and_its_run_is_done_again(fake, monkeypatch, capsys):
    monkeypatch.setenv("KILLED_ONCE", DONE[0])
    monkeypatch.setenv("DAMAGE", DONE[0])
    assert fake.run(n_trials=1) == 0
    assert fake.noted("start") == [DONE[0], DONE[0]]
    assert states(fake) == [TrialState.COMPLETE]
    (aside,) = fake.runs.glob("rte/*/result.json.damaged")
    assert aside.read_text() == '{"status": "fini'
    printed = capsys.readouterr().out
    assert f"trial-0-seed0: {aside.parent / 'result.json'} is damaged (JSONDecodeError" in printed
    assert "the run is done again, and it is kept as result.json.damaged" in printed


def test_a_finished_run_without_scores_is_a_failed_trial(fake, monkeypatch):
    monkeypatch.setenv("LACK", DONE[0])
    assert fake.run(n_trials=1) == 1
    assert "lacks scores" in fake.trials()[0].user_attrs["why"]


def test_a_call_stops_when_nothing_works(fake, monkeypatch, capsys):
    monkeypatch.setenv("FAIL", ",".join(DONE))
    assert fake.run() == 1
    assert len(fake.noted("start")) == 6
    assert "stopped: all 3 trials of this call failed" in capsys.readouterr().out
    table = (fake.folder / "table.md").read_text()
    assert "3 of 4 trials: 3 failed." in table
    assert "No trial is complete" in table


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_the_search_itself_is_raised_and_loses_no_trial(fake, monkeypatch, n_jobs):
    with monkeypatch.context() as patch:

        def fails(*_):
            raise KeyError("ours")

        patch.setattr("isotrain.studies.search_run._score", fails)
        with pytest.raises(KeyError, match="ours"):
            fake.run(n_jobs)
    assert set(states(fake)) == {TrialState.RUNNING}
    assert len(states(fake)) <= n_jobs
    assert fake.run(n_jobs) == 0
    assert states(fake) == [TrialState.COMPLETE] * 4
    assert sorted(fake.noted("end")) == DONE, "what had finished is read"
