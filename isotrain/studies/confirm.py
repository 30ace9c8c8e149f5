"""The study that tests, on new seeds, whether the best configuration of a search is better."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from isotrain.config.compose import key_of
from isotrain.studies.search import Record
from isotrain.studies.space import overrides_of
from isotrain.studies.trials import RUNS

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

N_SEEDS = 8  # from this number on, paired differences are tested by sign flips
COMPARED = ("isotropy", "objective")  # groups whose options are compared
NOTHING = (
    "There is nothing to compare it with: its values are those of the overrides alone, or a run "
    "needs them."
)
PLACES = ("output_dir", "cache_dir", "rerun")  # keys of the command line that no file names


class Confirmation(NamedTuple):
    """The study to run on the best trials."""

    file: str  # its name in the folder of the search
    yaml: str
    methods: list[str]  # the first is the baseline


def is_complete(trial: FrozenTrial) -> bool:
    """Whether it has a score."""
    return trial.state.name == "COMPLETE" and bool(trial.values)


def best_trial(trials: Sequence[FrozenTrial], direction: str) -> FrozenTrial | None:
    """The complete trial with the best score, the first of ties; None if none is complete."""
    sign = 1 if direction == "max" else -1
    complete = filter(is_complete, trials)
    return max(complete, key=lambda t: (sign * t.values[0], -t.number), default=None)


def confirmation(record: Record, trials: Sequence[FrozenTrial]) -> Confirmation | str:
    """A study of the best trial per option of a key, or of the best trial and the overrides alone.

    Options of `isotropy` or `objective` are compared if two of them have a complete trial. A
    sentence says why there is no study: trials are left, none is complete, or the overrides alone
    compute what the best trial does, or cannot run.
    """
    search = record.search
    best = best_trial(trials, record.direction)
    if best is None:
        return "No trial is complete, so there is no best one."
    if sum(trial.state.is_finished() for trial in trials) < search.n_trials:
        return "The study that confirms it is written when all trials have ended."
    options = {p.key: p.options for p in search.parameters if p.options and not p.when}
    key = next((key for key in COMPARED if key in options), "")
    winners, n_trials = {}, []
    for option in options.get(key, ()):
        option_trials = [trial for trial in trials if trial.params.get(key) == option]
        if winner := best_trial(option_trials, record.direction):
            winners[re.sub(r"[^A-Za-z0-9.]+", "_", option).strip("_.") or "none"] = winner
            n_trials.append(sum(map(is_complete, option_trials)))
    if len(winners) < 2:
        winners, n_trials = {"winner": best}, [sum(map(is_complete, trials))]
        if record.baseline in (None, str(best.user_attrs.get(RUNS, [""])[0]).rpartition("-")[2]):
            return NOTHING
    methods = {name: overrides_of(trial.params) for name, trial in winners.items()}
    if len(winners) < 2:
        methods = {"baseline": [], **methods}
    numbers = [str(trial.number) for trial in winners.values()]
    chosen = [f"trial {k}, best of {n}" for k, n in zip(numbers, n_trials, strict=True)]
    seeds = list(islice((k for k in count() if k not in search.seeds), N_SEEDS))
    overrides = [*search.overrides, *record.overrides]
    task_overrides = [text for text in overrides if key_of(text) == "task"]
    overrides = [text for text in overrides if key_of(text) not in ("task", *PLACES)]
    lines = [
        f"# Question: does what search {search.name} chose by {record.objective} hold on other "
        "seeds (and on test: its dev examples still favour the choice)?",
        f"# Chosen:   {'; '.join(chosen)}. The best of several scores is better than what the same "
        "values reach again, by luck of seeds and of dev examples. The seeds here are new, the dev "
        "examples are not: only a test score is unbiased.",
        f"overrides: {json.dumps(overrides)}",
        f"tasks: {{{json.dumps(record.task)}: {json.dumps(task_overrides)}}}",
        "methods:",
        *(f"  {json.dumps(method)}: {json.dumps(texts)}" for method, texts in methods.items()),
        f"baseline: {json.dumps(next(iter(methods)))} # that each other method is compared with",
        f"seeds: {seeds} # none of the search",
    ]
    if search.margin is not None:
        lines.append(f"margin: {search.margin} # of the search's file: closer counts as equal")
    file = f"{'_'.join(['confirm', search.name, *numbers])}.yaml"
    return Confirmation(file, "\n".join(lines) + "\n", list(methods))
