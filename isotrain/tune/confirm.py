"""The study that says whether the best trial of a search is any better, on fresh seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from isotrain.config.compose import content_hash
from isotrain.tune.plan import Plan, runs_of
from isotrain.tune.space import Value, overrides_of

N_SEEDS = 8  # from this number on a study judges paired differences by permutation


class Confirmation(NamedTuple):
    """A study to run."""

    file: str
    yaml: str
    arms: Sequence[str]  # the first is the baseline
    searched: Sequence[str]  # how hard each arm was searched for, where that may differ; lines


def best_trial(trials: Sequence[FrozenTrial], plan: Plan) -> FrozenTrial | None:
    """The complete trial with the best score, the first of equals; None where none is complete."""
    complete = [t for t in trials if t.state == TrialState.COMPLETE]
    sign = 1 if plan.direction == "max" else -1
    return max(complete, key=lambda t: (sign * t.values[0], -t.number), default=None)


def confirmation(plan: Plan, trials: Sequence[FrozenTrial]) -> Confirmation | None:
    """A study of the best trial against the overrides alone, or of the best of each option.

    The second where the search says which key to `compare`, and two of its options have a complete
    trial. None where arms would compute the same: there is nothing to compare.
    """
    best = best_trial(trials, plan)
    if best is None:
        return None
    chosen = _best_of_each(plan, trials)
    arms: dict[str, Mapping[str, Value]] = {name: trial.params for name, trial in chosen.items()}
    searched = _searched(plan, trials, chosen)
    if len(arms) < 2:
        chosen, arms, searched = {"winner": best}, {"baseline": {}, "winner": best.params}, []
    runs = [runs_of(plan, values)[0] for values in arms.values()]
    computed = [content_hash(jobs[0].cfg) for jobs in runs if jobs]
    if len(set(computed)) < len(computed):
        return None
    numbers = [trial.number for trial in chosen.values()]
    seeds = list(islice((k for k in count() if k not in plan.search.seeds), N_SEEDS))
    lines = [
        f"# Question: does what search {plan.search.name} found hold on seeds it has not used?",
        f"# Of {len(trials)} trials {' and '.join(map(str, numbers))} stood out by their scores on",
        "# dev, so those scores cannot answer. A baseline that is no trial was not searched for.",
        *(f"# {line}" for line in searched),
        f"overrides: {json.dumps(list(plan.overrides))}",
        f"tasks: {{{json.dumps(plan.task)}: []}}",
        "arms:",
        *(f"  {json.dumps(name)}: {json.dumps(overrides_of(v))}" for name, v in arms.items()),
        f"baseline: {json.dumps(next(iter(arms)))}",
        f"seeds: {seeds}",
    ]
    name = "_".join(["confirm", plan.search.name, *map(str, numbers)])
    return Confirmation(f"{name}.yaml", "\n".join(lines) + "\n", list(arms), searched)


def _searched(
    plan: Plan, trials: Sequence[FrozenTrial], chosen: Mapping[str, FrozenTrial]
) -> list[str]:
    """How many trials each option had: the best of many is the better for their number."""
    key = str(plan.search.compare)
    parts = []
    for name, best in chosen.items():
        own = [trial for trial in trials if trial.params.get(key) == best.params[key]]
        n_complete = sum(trial.state == TrialState.COMPLETE for trial in own)
        parts.append(f"{name} {n_complete} of {len(own)}")
    return [f"Each arm is the best of its complete trials: {', '.join(parts)}."] if parts else []


def _best_of_each(plan: Plan, trials: Sequence[FrozenTrial]) -> dict[str, FrozenTrial]:
    """The best trial of each option of the key to compare, by a name that a study takes."""
    key = plan.search.compare
    found = {}
    for option in next((p.options for p in plan.search.space if p.key == key), ()):
        best = best_trial([t for t in trials if t.params.get(str(key)) == option], plan)
        if best is not None:
            found[re.sub(r"[^A-Za-z0-9.]+", "_", option).strip("_.") or "none"] = best
    return found
