"""Trials of a storage: how values are found, when one is pruned, and what a run has logged."""

import json
import math
from dataclasses import replace

import optuna
import pytest
from optuna.trial import TrialState

from isotrain.studies.search import Search
from isotrain.studies.search_run import evaluations
from isotrain.studies.trials import (
    enqueue_points,
    n_to_come,
    queue_left,
    sampler_of,
    trials_of,
)
from tests.studies.trials import next_trial, opened


def ended(study, plan, n):
    """Values of n trials, each told as it is asked for."""
    found = []
    for _ in range(n):
        taken = next_trial(study, plan)
        study.tell(taken.trial, 0.5)
        found.append(taken.values)
    return found


def test_tpe_leaves_a_region_whose_trials_are_told_as_bad():
    """Of failed ones it hears nothing and goes on with them, as the score rises up to there."""

    def n_bad(seed, is_told):
        search, found = Search("any", (), 30, startup=8, seed=seed), []
        study = optuna.create_study(direction="maximize")
        for number in range(search.n_trials):
            study.sampler = sampler_of(search, number)
            trial = study.ask()
            lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
            found.append(lr > 1e-3)
            if not found[-1]:
                study.tell(trial, math.log10(lr))
            elif is_told:
                trial.set_constraint("can be ranked", 1.0)
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, state=TrialState.FAIL)
        return sum(found[8:])

    left, gone_on = (sum(n_bad(seed, told) for seed in range(4)) for told in (True, False))
    assert left < 0.65 * gone_on, (left, gone_on)


def test_no_trial_is_pruned_by_fewer_than_startup_trials_that_have_the_evaluation(few):
    few.says(pruner="median", startup=2, warmup=0)
    plan = few.plan()
    with opened(plan) as study:
        for values in ([0.5], [0.5, 0.9]):
            taken = next_trial(study, plan)
            for number, value in enumerate(values, start=1):
                taken.trial.report(value, number)
            study.tell(taken.trial, values[-1])
        taken = next_trial(study, plan)
        taken.trial.report(0.6, 1)
        taken.trial.report(0.6, 2)
        assert not taken.trial.should_prune(), "one complete trial has evaluation 2"


def test_the_seed_of_the_sampler_and_the_number_of_a_trial_set_its_values(few):
    def values(name, seed):
        few.says(sampler="random", seed=seed, n_trials=3)
        plan = few.plan(name=name)
        with opened(plan) as study:
            return [v["optimizer.lr"] for v in ended(study, plan, 3)]

    first = values("a", 0)
    assert len(set(first)) == 3
    assert values("b", 0) == first
    assert values("c", 1) != first


def test_a_grid_does_no_more_of_what_a_stopped_call_queued_than_is_asked_for(few):
    few.says(space="{optimizer.lr: [0.1, 0.2, 0.3, 0.4]}", sampler="grid", n_trials=4)
    with opened(plan := few.plan()) as study:
        enqueue_points(study, plan)
        study.tell(study.ask(), 0.5)
        assert n_to_come(study, plan) == 3
        for n_trials, n_left in ((2, 1), (1, 0)):
            fewer = plan._replace(search=replace(plan.search, n_trials=n_trials))
            enqueue_points(study, fewer)
            assert n_to_come(study, fewer) == n_left


@pytest.mark.parametrize("killed", ["before it is replaced", "after it", "after both"])
def test_a_point_of_a_grid_that_was_left_is_queued_once(few, monkeypatch, killed):
    """Left with some of its values drawn, by a call that was killed while it queued it again."""
    few.says(
        space="{optimizer.lr: [0.1, 0.2], data.batch_size: [8, 16]}", sampler="grid", n_trials=4
    )
    plan = few.plan()
    with opened(plan) as study:
        study.ask().suggest_categorical("optimizer.lr", ("0.1", "0.2"))
        with monkeypatch.context() as patch:
            if killed != "after both":
                name = "tell" if killed == "after it" else "add_trial"
                patch.setattr(type(study), name, lambda *_, **__: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    queue_left(study)
        queue_left(study)
        queue_left(study)
        enqueue_points(study, plan)
        assert n_to_come(study, plan) == len(trials_of(study)) == 4
        found = ended(study, plan, 4)
    assert {tuple(values.values()) for values in found} == {
        *(("0.1", "8"), ("0.1", "16"), ("0.2", "8"), ("0.2", "16"))
    }


KEY = "val/accuracy"


def write(file, rows, tail=""):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)


def test_evaluations_in_training_are_numbered_not_their_steps(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert evaluations(file, KEY) == []
    write(
        file,
        [
            {"step": 0, KEY: 0.9},  # before training: says nothing of the values
            {"step": 10, "train/loss": 0.1},
            {"step": 17, KEY: 0.5},
            {"step": 34, KEY: None, "val/loss": 1.0},
            {"step": 51, KEY: 0.7},
        ],
        tail='{"step": 68, "val/accu',
    )
    first, second, third = evaluations(file, KEY)
    assert (first, third) == (0.5, 0.7)
    assert math.isnan(second)
    assert evaluations(file, "val/acc") == []


def test_a_step_that_is_evaluated_again_counts_once(tmp_path):
    file = tmp_path / "metrics.jsonl"
    write(file, [{"step": s, KEY: v} for s, v in ((5, 0.1), (10, 0.2), (10, 0.3), (5, 0.4))])
    assert evaluations(file, KEY) == [0.1, 0.2]
