"""Trials of a storage without runs."""

from contextlib import contextmanager
from typing import Any, NamedTuple

from optuna.trial import Trial

from isotrain.studies import trials
from isotrain.studies.trials import sampler_of, suggested


class Taken(NamedTuple):
    trial: Trial
    values: dict[str, Any]


@contextmanager
def opened(plan):
    plan.folder.mkdir(parents=True, exist_ok=True)
    with trials.opened(plan) as study:
        if plan.is_grid:
            trials.enqueue_points(study, plan)
        yield study


def next_trial(study, plan):
    """A new trial, or the next one that is queued."""
    trial = study.ask()
    study.sampler = sampler_of(plan.search, trial.number)
    return Taken(trial, suggested(trial, plan.search.space))
