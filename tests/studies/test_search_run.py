"""Trials in processes: scores, pruning, devices, and how they fail."""

import re
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from optuna.trial import TrialState

import isotrain.studies.search_plan
from isotrain.runs.stored import PlanError
from isotrain.studies.trials import opened

DONE = [f"trial-{number}-seed0" for number in range(4)]
TABLES = ("table.md", "trials.csv")


def tables(few):
    return [(few.folder / name).read_bytes() for name in TABLES]


def test_every_trial_is_a_run_and_its_score_the_mean_over_seeds(few, capsys):
    few.says(seeds="[0, 2]", n_trials=2)
    assert few.run() == 0
    order = [f"trial-{number}-seed{seed}" for number in (0, 1) for seed in (0, 2)]
    assert few.noted("start") == few.noted("end") == order
    for trial in few.trials():
        one, other = trial.user_attrs["scores"]
        assert one - other == pytest.approx(0.02)
        assert trial.value == pytest.approx((one + other) / 2)
    printed = capsys.readouterr().out
    assert "search few: 2 trials, 0 ended before, 1 at a time" in printed
    assert (few.folder / "table.md").read_text() in printed
    first = tables(few)
    assert few.run(2) == 0
    assert len(few.noted("start")) == 4, "nothing is left to do"
    assert tables(few) == first
    assert few.run(n_trials=3) == 0
    assert len(few.noted("start")) == 6


def test_values_that_were_run_before_are_read(few):
    few.says(space="{optimizer.lr: [0.001, 0.01]}", sampler="grid", n_trials=5)
    assert few.run() == 0
    assert len(few.noted("start")) == 2, "a grid ends with its points"
    for file in few.folder.glob("study.db"):
        file.unlink()
    assert few.run() == 0
    assert len(few.noted("start")) == 2
    assert [trial.value for trial in few.trials()] == pytest.approx([0.9, 0.8])


def test_a_bad_trial_is_stopped_early_by_what_it_logs(few, monkeypatch):
    few.says(
        space="{optimizer.lr: [1.0e-3, 2.0e-3, 1.0e-1]}",
        sampler="grid",
        pruner="median",
        startup=2,
        warmup=1,
        n_trials=2,
    )
    assert few.run() == 0
    monkeypatch.setenv("PACE_S", "0.7")
    monkeypatch.setattr("isotrain.studies.search_run.LOOK_S", 0.05)
    assert few.run(n_trials=3) == 0
    assert few.states() == [TrialState.COMPLETE] * 2 + [TrialState.PRUNED]
    last = few.trials()[-1]
    assert last.user_attrs["why"].startswith("below the median at evaluation 2: 0.7")
    assert last.user_attrs["why"].endswith(" at best")
    assert few.noted("stop") == ["trial-2-seed0"]
    assert few.noted("end") == DONE[:2]


def test_a_combination_that_cannot_run_is_a_failed_trial(few, monkeypatch, capsys):
    def judged(overrides, config_dir=None):
        cfg, mistakes = plan.check_command(overrides, config_dir)
        return cfg, [*mistakes, *(["the middle cannot run"] if cfg.optimizer.lr == 0.2 else [])]

    few.says(space="{optimizer.lr: {low: 0.1, high: 0.3, step: 0.1}}", sampler="grid")
    plan = SimpleNamespace(check_command=isotrain.studies.search_plan.check_command)
    monkeypatch.setattr("isotrain.studies.search_plan.check_command", judged)
    assert few.run() == 1
    assert few.states() == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert few.trials()[1].user_attrs["why"] == "cannot run: the middle cannot run"
    assert few.noted("start") == [DONE[0], DONE[2]]


def test_another_search_of_the_same_name_is_refused_and_loses_nothing(few):
    assert few.run(n_trials=1) == 0
    few.says(seeds="[1]")
    with pytest.raises(PlanError, match=r"holds 1 trials of another search.*seeds.*--name"):
        few.run()
    few.says(n_trials=2)
    assert few.run() == 0
    assert few.states() == [TrialState.COMPLETE] * 2


def test_a_damaged_storage_is_told(few):
    few.folder.mkdir(parents=True)
    (few.folder / "study.db").write_text("no database" * 100)
    with pytest.raises(PlanError, match=r"study.db cannot be opened .*--name OTHER"):
        few.run()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("study_user_attributes set value_json = '[1]'", "the search: identity must be an object"),
        ("trial_user_attributes set value_json = '7'", "trial 0: code must be a list, got 7"),
        ("trial_user_attributes set value_json = '{'", "JSONDecodeError: "),
        ("trial_values set value = 'x'", "trial 0: values.0 must be a finite number, got 'x'"),
        ("trials set state = 'x'", "LookupError: 'x' is not"),
    ],
)
def test_what_no_search_has_written_into_the_storage_is_told(few, change, told):
    few.says(n_trials=1).run()
    with closing(sqlite3.connect(few.folder / "study.db")) as database, database:
        database.execute(f"update {change}")
    with pytest.raises(PlanError, match=rf"study\.db is damaged \({re.escape(told)}.*--name OTHER"):
        few.run()


def test_trials_on_other_data_are_refused(few, tmp_path, write_fixture_data, monkeypatch):
    root = tmp_path / "data"
    write_fixture_data(root)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(root))
    few.folder.mkdir(parents=True)
    with opened(few.plan("source=local")):
        pass
    moved = root.rename(tmp_path / "moved")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(moved))
    with opened(few.plan("source=local")):
        pass
    with (moved / "rte" / "train.jsonl").open("a") as file:
        file.write("\n")
    told = r"runs read, .*sha256.*would read now, .*sha256"
    with pytest.raises(PlanError, match=told), opened(few.plan("source=local")):
        pass


def test_a_failure_is_a_failed_trial_with_its_reason_after_it_was_tried_once_more(
    few, monkeypatch, capsys
):
    monkeypatch.setenv("FAIL", DONE[1])
    assert few.run(n_trials=2) == 1
    assert few.noted("start") == [DONE[0], DONE[1], DONE[1]]
    assert few.states() == [TrialState.COMPLETE, TrialState.FAIL]
    assert few.trials()[1].user_attrs["why"] == (
        "trial-1-seed0: exit code 3; the reason | in words; also when it was tried once more"
    )
    printed = capsys.readouterr().out
    log = few.folder / "logs" / "trial-1-seed0.log"
    assert f"exit code 3; {log} ends:\n    first line\n    the reason | in words\n" in printed
    assert "trial-1-seed0 is tried once more" in printed
    table = (few.folder / "table.md").read_text()
    assert "Trial 0 is the best of 1 on dev" in table
    assert r"the reason \| in words" in table


def test_what_is_refused_is_not_tried_again(few, monkeypatch):
    monkeypatch.setenv("FAIL", DONE[0])
    monkeypatch.setenv("CODE_OF_FAILURE", "2")
    assert few.run(n_trials=2) == 1
    assert few.noted("start") == DONE[:2]
    assert few.trials()[0].user_attrs["why"].endswith("exit code 2; the reason | in words")


def test_a_run_that_was_killed_goes_on_and_its_trial_is_complete(few, monkeypatch):
    monkeypatch.setenv("KILLED_ONCE", DONE[0])
    assert few.run(n_trials=1) == 0
    assert few.noted("start") == [DONE[0], DONE[0]]
    assert few.states() == [TrialState.COMPLETE]


def test_trials_whose_values_are_bad_are_told_to_the_sampler_and_stop_no_search(
    few, monkeypatch, capsys
):
    monkeypatch.setenv("DIVERGE", DONE[0])
    monkeypatch.setenv("NAN", DONE[1])
    monkeypatch.setenv("ALIKE", DONE[2])
    assert few.run() == 0
    assert few.noted("start") == DONE, "nothing is tried again"
    assert few.states() == [TrialState.PRUNED] * 3 + [TrialState.COMPLETE]
    bad = [sum(trial.constraints.values()) > 0 for trial in few.trials()]
    assert bad == [True, True, True, False]
    table = (few.folder / "table.md").read_text()
    assert "4 of 4 trials: 1 complete, 1 degenerate, 1 diverged, 1 undefined." in table
    assert [trial.user_attrs.get("why", "") for trial in few.trials()] == [
        "trial-0-seed0: exit code 1; the loss is nan after 3 steps",
        "val/accuracy of trial-1-seed0 is not finite",
        "trial-2-seed0: all one class",
        "",
    ]
    assert "degenerate trial 2: trial-2-seed0: all one class" in capsys.readouterr().out


def test_points_of_a_grid_whose_trial_failed_are_tried_again_by_a_later_call(
    few, monkeypatch, capsys
):
    few.says(space="{optimizer.lr: [0.001, 0.01, 0.1]}", sampler="grid", n_trials=3)
    monkeypatch.setenv("FAIL", DONE[1])
    assert few.run() == 1
    assert few.states() == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert "3 of 3 points, 3 trials: 2 complete, 1 failed." in capsys.readouterr().out
    assert few.run() == 0
    assert "points whose trial failed, tried again: 1" in capsys.readouterr().out
    last = few.trials()[-1]
    assert (len(few.trials()), last.state) == (4, TrialState.COMPLETE)
    assert last.params == {"optimizer.lr": "0.01"}
    assert few.run() == 0
    assert len(few.trials()) == 4, "every point has its trial"
    assert "3 of 3 points, 4 trials: 3 complete, 1 failed." in capsys.readouterr().out


def test_a_call_stops_when_nothing_works(few, monkeypatch, capsys):
    monkeypatch.setenv("FAIL", ",".join(DONE))
    assert few.run() == 1
    assert len(few.noted("start")) == 6
    assert "stopped: all 3 trials of this call failed" in capsys.readouterr().out
    table = (few.folder / "table.md").read_text()
    assert "3 of 4 trials: 3 failed." in table
    assert "No trial is complete" in table


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_the_search_itself_is_raised_and_loses_no_trial(few, monkeypatch, n_jobs):
    with monkeypatch.context() as patch:

        def fails(*_):
            raise KeyError("ours")

        patch.setattr("isotrain.studies.search_run._score", fails)
        with pytest.raises(KeyError, match="ours"):
            few.run(n_jobs)
    assert set(few.states()) == {TrialState.RUNNING}
    assert len(few.states()) <= n_jobs
    assert few.run(n_jobs) == 0
    assert few.states() == [TrialState.COMPLETE] * 4
    assert sorted(few.noted("end")) == DONE, "what had finished is read"
