"""Trials in processes: scores, failures, pruning, refusals."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from optuna.trial import TrialState

import isotrain.tune.plan
from isotrain.tune.definition import TuneError

DONE = [f"trial-{number}-seed0" for number in range(4)]
TABLES = ("table.md", "trials.csv")


def tables(fake):
    return [(fake.folder / name).read_bytes() for name in TABLES]


def states(fake):
    return [trial.state for trial in fake.trials()]


def test_every_trial_is_a_run_and_its_score_the_mean_over_seeds(fake, capsys):
    fake.says(seeds="[0, 2]", n_trials=2)
    assert fake.run() == 0
    order = [f"trial-{number}-seed{seed}" for number in (0, 1) for seed in (0, 2)]
    assert fake.noted("start") == fake.noted("end") == order
    for trial in fake.trials():
        one, other = trial.user_attrs["scores"]
        assert one - other == pytest.approx(0.02)
        assert trial.value == pytest.approx((one + other) / 2)
    printed = capsys.readouterr().out
    assert "search few: 2 trials, 0 ended before, 1 at a time" in printed
    assert (fake.folder / "table.md").read_text() in printed
    first = tables(fake)
    assert fake.run(2) == 0
    assert len(fake.noted("start")) == 4, "nothing is left to do"
    assert tables(fake) == first
    assert fake.run(n_trials=3) == 0
    assert len(fake.noted("start")) == 6


def test_values_that_were_run_before_are_read(fake):
    fake.says(space="{optimizer.lr: [0.001, 0.01]}", sampler="grid", n_trials=5)
    assert fake.run() == 0
    assert len(fake.noted("start")) == 2, "a grid ends with its points"
    for file in fake.folder.glob("study.db"):
        file.unlink()
    assert fake.run() == 0
    assert len(fake.noted("start")) == 2
    assert [trial.value for trial in fake.trials()] == pytest.approx([0.9, 0.8])


def test_a_failure_a_nan_and_a_collapse_are_failed_trials_with_their_reasons(
    fake, monkeypatch, capsys
):
    monkeypatch.setenv("FAIL", DONE[1])
    monkeypatch.setenv("NAN", DONE[2])
    monkeypatch.setenv("ALIKE", DONE[3])
    assert fake.run() == 1
    assert states(fake) == [TrialState.COMPLETE] + [TrialState.FAIL] * 3
    assert [trial.user_attrs["why"] for trial in fake.trials()] == [
        "",
        "trial-1-seed0: exit code 3; the reason | in words",
        "val/accuracy of trial-2-seed0 is not finite",
        "trial-3-seed0 is degenerate: all one class",
    ]
    printed = capsys.readouterr().out
    log = fake.folder / "logs" / "trial-1-seed0.log"
    assert f"exit code 3; {log} ends:\n    first line\n    the reason | in words\n" in printed
    table = (fake.folder / "table.md").read_text()
    assert "Trial 0 is the best of 1 on dev" in table
    assert r"the reason \| in words" in table


def test_a_call_stops_when_nothing_works(fake, monkeypatch, capsys):
    monkeypatch.setenv("FAIL", ",".join(DONE))
    assert fake.run() == 1
    assert len(fake.noted("start")) == 3
    assert "stopped: all 3 trials of this call failed" in capsys.readouterr().out
    table = (fake.folder / "table.md").read_text()
    assert "3 of 4 trials: 3 failed." in table
    assert "No trial is complete" in table


def test_a_bad_trial_is_stopped_early_by_what_it_logs(fake, monkeypatch):
    fake.says(
        space="{optimizer.lr: [1.0e-3, 2.0e-3, 1.0e-1]}",
        sampler="grid",
        pruner="median",
        startup=2,
        warmup=1,
        n_trials=2,
    )
    assert fake.run() == 0
    monkeypatch.setenv("PACE_S", "0.7")
    monkeypatch.setattr("isotrain.tune.trial.LOOK_S", 0.05)
    assert fake.run(n_trials=3) == 0
    assert states(fake) == [TrialState.COMPLETE] * 2 + [TrialState.PRUNED]
    last = fake.trials()[-1]
    assert last.user_attrs["why"].startswith("worse than the median at evaluation 2: 0.7")
    assert fake.noted("stop") == ["trial-2-seed0"]
    assert fake.noted("end") == DONE[:2]


def test_a_combination_that_cannot_run_is_a_failed_trial(fake, monkeypatch, capsys):
    def judged(overrides, config_dir=None):
        cfg, mistakes = plan.check_command(overrides, config_dir)
        return cfg, [*mistakes, *(["the middle cannot run"] if cfg.optimizer.lr == 0.2 else [])]

    fake.says(space="{optimizer.lr: {low: 0.1, high: 0.3, step: 0.1}}", sampler="grid")
    plan = SimpleNamespace(check_command=isotrain.tune.plan.check_command)
    monkeypatch.setattr("isotrain.tune.plan.check_command", judged)
    assert fake.run() == 1
    assert states(fake) == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert fake.trials()[1].user_attrs["why"] == "cannot run: the middle cannot run"
    assert fake.noted("start") == [DONE[0], DONE[2]]


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK"])
def test_one_rank_of_several_is_refused(fake, monkeypatch, name):
    monkeypatch.setenv(name, "0")
    with pytest.raises(TuneError, match=r"each would try values of its own"):
        fake.run()
    assert not fake.runs.exists()


def test_another_search_of_the_same_name_is_refused_and_loses_nothing(fake):
    assert fake.run(n_trials=1) == 0
    fake.says(seeds="[1]")
    with pytest.raises(TuneError, match=r"holds 1 trials of another search.*seeds.*--name"):
        fake.run()
    fake.says(n_trials=2)
    assert fake.run() == 0
    assert states(fake) == [TrialState.COMPLETE] * 2


def test_a_damaged_storage_is_told(fake):
    fake.folder.mkdir(parents=True)
    (fake.folder / "study.db").write_text("no database" * 100)
    with pytest.raises(TuneError, match=r"study.db cannot be opened .*--name OTHER"):
        fake.run()
