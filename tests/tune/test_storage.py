"""Trials of a storage: how values are found, how a trial belongs to one process at a time."""

from __future__ import annotations

import math
import os
import random

import optuna
import pytest
from optuna.trial import TrialState

from isotrain.jobs.locks import take
from isotrain.tune import storage
from isotrain.tune.definition import Search
from isotrain.tune.storage import next_trial, opened, sampler_of, still_running, trial_lock


def ended(study, plan, score):
    """Values and scores of all trials, each told as it is asked for."""
    found = []
    while (taken := next_trial(study, plan)) is not None:
        value = score(taken.values)
        study.tell(taken.trial, value)
        os.close(taken.lock)
        found.append((taken.values, value))
    return found


def bowl(values):
    return -((math.log10(values["optimizer.lr"]) + 3) ** 2)


def test_tpe_comes_closer_to_the_optimum_than_chance():
    """After its trials at random, in the mean over trials and seeds."""

    def later(sampler, seed):
        search = Search("any", (), 28, sampler=sampler, startup=8, seed=seed)
        study, scores = optuna.create_study(direction="maximize"), []
        for number in range(search.n_trials):
            study.sampler = sampler_of(search, number)
            trial = study.ask()
            scores.append(bowl({"optimizer.lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True)}))
            study.tell(trial, scores[-1])
        return sum(scores[8:]) / 20

    # A uniform exponent in [-5, -1] is 4/3 from -3 in the mean of squares.
    assert sum(later("random", seed) for seed in range(6)) / 6 == pytest.approx(-4 / 3, abs=0.3)
    assert sum(later("tpe", seed) for seed in range(6)) / 6 > -0.9


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


def test_no_trial_is_pruned_by_fewer_than_startup_trials_that_have_the_evaluation(fake):
    fake.says(pruner="median", startup=2, warmup=0)
    plan = fake.plan()
    with opened(plan) as study:
        for values in ([0.5], [0.5, 0.9]):
            taken = next_trial(study, plan)
            for number, value in enumerate(values, start=1):
                taken.trial.report(value, number)
            study.tell(taken.trial, values[-1])
            os.close(taken.lock)
        taken = next_trial(study, plan)
        taken.trial.report(0.6, 1)
        taken.trial.report(0.6, 2)
        assert not taken.trial.should_prune(), "one complete trial has evaluation 2"
        os.close(taken.lock)


def test_a_trial_that_ends_while_it_is_looked_at_is_not_taken_up_again(fake, monkeypatch):
    """Its process tells its end, and gives the lock back, behind the look at what is running."""
    fake.says(n_trials=2)
    plan = fake.plan()
    with opened(plan) as study:
        first = next_trial(study, plan)

        def ended_meanwhile(path):
            if path == trial_lock(plan, 0) and not study.trials[0].state.is_finished():
                study.tell(first.trial, 0.5)
                os.close(first.lock)
            return take(path)

        monkeypatch.setattr(storage, "take", ended_meanwhile)
        second = next_trial(study, plan)
        assert (second.trial.number, second.is_new) == (1, True)
        study.tell(second.trial, 0.6)
        os.close(second.lock)
        os.close(take(trial_lock(plan, 0)))  # given back


def test_the_seed_of_the_sampler_and_the_number_of_a_trial_set_its_values(fake):
    def values(name, seed):
        fake.says(sampler="random", seed=seed, n_trials=3)
        plan = fake.plan(name=name)
        with opened(plan) as study:
            return [v["optimizer.lr"] for v, _ in ended(study, plan, bowl)]

    first = values("a", 0)
    assert len(set(first)) == 3
    assert values("b", 0) == first
    assert values("c", 1) != first


def test_a_grid_is_gone_through_in_order(fake):
    fake.says(
        space="{isotropy: [none, clip], isotropy.n_components: {low: 1, high: 3, step: 2, "
        "when: {isotropy: clip}}}",
        sampler="grid",
        n_trials=9,
    )
    plan = fake.plan()
    with opened(plan) as study:
        found = [values for values, _ in ended(study, plan, lambda values: random.random())]
    assert found == [
        {"isotropy": "none"},
        {"isotropy": "clip", "isotropy.n_components": 1},
        {"isotropy": "clip", "isotropy.n_components": 3},
    ]


def test_a_trial_belongs_to_who_holds_its_lock_and_is_taken_up_when_it_is_free(fake):
    fake.says(n_trials=2)
    plan = fake.plan()
    with opened(plan) as study:
        first, second = next_trial(study, plan), next_trial(study, plan)
        assert next_trial(study, plan) is None, "both are at work"
        assert take(trial_lock(plan, 0)) is None
        os.close(first.lock)
        again = next_trial(study, plan)
        assert (again.trial.number, again.values, again.is_new) == (0, first.values, False)
        again.trial.report(0.5, 1)
        study.tell(again.trial, 0.5)
        os.close(again.lock)
        assert [trial.number for trial in still_running(study)] == [1]
        study.tell(second.trial, state=TrialState.FAIL)
        os.close(second.lock)
        assert next_trial(study, plan) is None, "a failed trial counts"
        assert study.trials[0].intermediate_values == {1: 0.5}


def test_a_point_that_a_killed_process_had_put_in_line_is_used(fake):
    fake.says(space="{optimizer.lr: [0.1, 0.2, 0.3]}", sampler="grid")
    plan = fake.plan()
    with opened(plan) as study:
        study.enqueue_trial({"optimizer.lr": "0.1"})
        found = [values["optimizer.lr"] for values, _ in ended(study, plan, lambda values: 0.0)]
    assert found == ["0.1", "0.2", "0.3"]


def test_a_trial_whose_values_were_not_all_drawn_gets_the_rest(fake):
    fake.says(space="{isotropy: [none, mean], optimizer.lr: {low: 0.1, high: 0.2}}", n_trials=1)
    plan = fake.plan()
    with opened(plan) as study:
        chosen = study.ask().suggest_categorical("isotropy", ("none", "mean"))
        taken = next_trial(study, plan)
        assert taken.values["isotropy"] == chosen
        assert 0.1 <= taken.values["optimizer.lr"] <= 0.2
        os.close(taken.lock)
