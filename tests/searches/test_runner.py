"""Trials in processes: scores, pruning, devices, refusals."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from optuna.trial import TrialState

import isotrain.studies.search_plan
from isotrain.jobs.devices import device_for
from isotrain.jobs.stored import PlanError
from isotrain.studies.trials import opened

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


def test_two_calls_with_one_trial_at_a_time_take_two_devices(fake, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    noted = tmp_path / "devices"
    note = f'echo "$CUDA_VISIBLE_DEVICES" >> {noted}; exec "$0" "$@"'
    fake = fake._replace(command=["sh", "-c", note, *fake.command])
    cfg = OmegaConf.create({"trainer": {}})
    assert fake.run(n_trials=1) == 0
    with device_for(cfg, ["5", "6"], side_by_side=False):  # another call's
        assert fake.run(n_trials=2) == 0
    assert noted.read_text().split() == ["5,6", "6"]


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
    monkeypatch.setattr("isotrain.studies.search_run.LOOK_S", 0.05)
    assert fake.run(n_trials=3) == 0
    assert states(fake) == [TrialState.COMPLETE] * 2 + [TrialState.PRUNED]
    last = fake.trials()[-1]
    assert last.user_attrs["why"].startswith("below the median at evaluation 2: 0.7")
    assert last.user_attrs["why"].endswith(" at best")
    assert fake.noted("stop") == ["trial-2-seed0"]
    assert fake.noted("end") == DONE[:2]


def test_a_combination_that_cannot_run_is_a_failed_trial(fake, monkeypatch, capsys):
    def judged(overrides, config_dir=None):
        cfg, mistakes = plan.check_command(overrides, config_dir)
        return cfg, [*mistakes, *(["the middle cannot run"] if cfg.optimizer.lr == 0.2 else [])]

    fake.says(space="{optimizer.lr: {low: 0.1, high: 0.3, step: 0.1}}", sampler="grid")
    plan = SimpleNamespace(check_command=isotrain.studies.search_plan.check_command)
    monkeypatch.setattr("isotrain.studies.search_plan.check_command", judged)
    assert fake.run() == 1
    assert states(fake) == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert fake.trials()[1].user_attrs["why"] == "cannot run: the middle cannot run"
    assert fake.noted("start") == [DONE[0], DONE[2]]


def test_another_search_of_the_same_name_is_refused_and_loses_nothing(fake):
    assert fake.run(n_trials=1) == 0
    fake.says(seeds="[1]")
    with pytest.raises(PlanError, match=r"holds 1 trials of another search.*seeds.*--name"):
        fake.run()
    fake.says(n_trials=2)
    assert fake.run() == 0
    assert states(fake) == [TrialState.COMPLETE] * 2


def test_a_damaged_storage_is_told(fake):
    fake.folder.mkdir(parents=True)
    (fake.folder / "study.db").write_text("no database" * 100)
    with pytest.raises(PlanError, match=r"study.db cannot be opened .*--name OTHER"):
        fake.run()


def test_trials_on_other_data_are_refused(fake, tmp_path, write_fixture_data, monkeypatch):
    root = tmp_path / "data"
    write_fixture_data(root)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(root))
    fake.folder.mkdir(parents=True)
    with opened(fake.plan("source=local")):
        pass
    moved = root.rename(tmp_path / "moved")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(moved))
    with opened(fake.plan("source=local")):
        pass
    with (moved / "rte" / "train.jsonl").open("a") as file:
        file.write("\n")
    told = r"runs read, .*sha256.*would read now, .*sha256"
    with pytest.raises(PlanError, match=told), opened(fake.plan("source=local")):
        pass
