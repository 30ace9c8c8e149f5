"""The study that tests, on new seeds, whether the search's best configuration is better."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from isotrain.studies.search_plan import Plan, trial_jobs
from isotrain.studies.space import Value, overrides_of

N_SEEDS = 8  # from this number on, paired differences are tested by sign flips
NOTHING = (
    "Its values compute what the overrides alone compute, or those cannot run without them: there "
    "is nothing to confirm."
)
COMPARED = ("isotropy", "objective")  # groups that a search compares by default


class Confirmation(NamedTuple):
    """A study to run."""

    file: str
    yaml: str
    methods: Sequence[str]  # the first is the baseline
    shows: Sequence[str]  # what each comparison can and cannot show, in sentences


def best_trial(trials: Sequence[FrozenTrial], plan: Plan) -> FrozenTrial | None:
    """The complete trial with the best score, the first of ties; None if none is complete."""
    complete = [t for t in trials if t.state == TrialState.COMPLETE]
    sign = 1 if plan.direction == "max" else -1
    return max(complete, key=lambda t: (sign * t.values[0], -t.number), default=None)


def confirmation(plan: Plan, trials: Sequence[FrozenTrial]) -> Confirmation | str:
    """A study of the best trial per option of a key, or of the best trial and its ablations.

    If there is none, a sentence says why. Options are compared if the search sets `compare`, or
    searches `isotropy` or `objective`, and two of them have a complete trial. Otherwise the
    baseline has only the overrides, and `without_<leaf>` is the best trial with one searched key
    at its default.
    """
    best = best_trial(trials, plan)
    if best is None:
        return NOTHING
    if plan.objective != plan.monitored:
        score = f", {plan.monitored}" if plan.monitored else ""
        return (
            f"No study is written to confirm it: a study compares what the task monitors{score}, "
            f"and the trials were chosen by {plan.objective}."
        )
    chosen = _best_of_each(plan, trials)
    if len(chosen) > 1:
        methods = _different(plan, {name: trial.params for name, trial in chosen.items()})
        shows = _of_options(plan, trials, chosen)
    else:
        chosen, without = {"winner": best}, _without(plan, best.params)
        methods = _different(plan, {"baseline": {}, "winner": best.params, **without})
        if "winner" not in methods:
            return NOTHING
        shows = _of_ablations(methods)
    if len(methods) < 2:
        return NOTHING
    numbers = [trial.number for trial in chosen.values()]
    seeds = list(islice((k for k in count() if k not in plan.search.seeds), N_SEEDS))
    name = "_".join(["confirm", plan.search.name, *map(str, numbers)])
    task = [text for text in plan.overrides if text.startswith("task=")]
    which = "Trial" if len(numbers) == 1 else "Trials"
    made = (
        f"{which} {' and '.join(map(str, numbers))} of the {len(trials)} that search "
        f"{plan.search.name} made, chosen by {plan.objective}. The best of several scores is "
        "better than what the same values reach again, so the runs here have other seeds."
    )
    left_out = {*task, *plan.folders}
    lines = [
        f"# Question: does what search {plan.search.name} found hold on seeds it has not used?",
        f"# Chosen:   {made}",
        *(f"# Shows:    {line}" for line in shows),
        f"overrides: {json.dumps([text for text in plan.overrides if text not in left_out])}",
        f"tasks: {{{json.dumps(plan.task)}: {json.dumps(task)}}}",
        "methods:",
        *(f"  {json.dumps(method)}: {json.dumps(own)}" for method, own in methods.items()),
        f"baseline: {json.dumps(next(iter(methods)))} # that each other method is compared with",
        f"seeds: {seeds} # none of the search",
    ]
    if plan.search.margin is not None:
        lines.append(f"margin: {plan.search.margin} # of the search's file: closer counts as equal")
    return Confirmation(f"{name}.yaml", "\n".join(lines) + "\n", list(methods), shows)


def _best_of_each(plan: Plan, trials: Sequence[FrozenTrial]) -> dict[str, FrozenTrial]:
    """The best trial of each option of the key to compare, by a valid method name."""
    key, found = _compared(plan), {}
    for option in next((p.options for p in plan.search.space if p.key == key), ()):
        best = best_trial([t for t in trials if t.params.get(str(key)) == option], plan)
        if best is not None:
            found[re.sub(r"[^A-Za-z0-9.]+", "_", option).strip("_.") or "none"] = best
    return found


def _compared(plan: Plan) -> str | None:
    """The key whose options are compared; None if the search does not compare a key."""
    with_options = [p.key for p in plan.search.space if p.options and not p.when]
    return plan.search.compare or next((key for key in COMPARED if key in with_options), None)


def _without(plan: Plan, values: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Ablations of `values`, by method name: without one key and the keys conditional on it."""
    leaves = Counter(key.rpartition(".")[2] for key in values)
    found = {}
    for left_out in values:
        kept: dict[str, Value] = {}
        for p in plan.search.space:
            if p.key in values and p.key != left_out and p.is_active(kept):
                kept[p.key] = values[p.key]
        leaf = left_out.rpartition(".")[2]
        found[f"without_{leaf if leaves[leaf] == 1 else left_out}"] = kept
    return found


def _different(plan: Plan, methods: Mapping[str, Mapping[str, Value]]) -> dict[str, list[str]]:
    """Overrides of the methods that can run and do not duplicate an earlier one."""
    found: dict[str, list[str]] = {}
    known = set()
    for name, values in methods.items():
        jobs, _ = trial_jobs(plan, values)
        if jobs and jobs[0].id not in known:
            known.add(jobs[0].id)
            found[name] = overrides_of(values)
    return found


def _of_options(
    plan: Plan, trials: Sequence[FrozenTrial], chosen: Mapping[str, FrozenTrial]
) -> list[str]:
    """What the best trials per option show, and how many trials each option had."""
    key = str(_compared(plan))
    parts = []
    for name, best in chosen.items():
        own = [trial for trial in trials if trial.params.get(key) == best.params[key]]
        n_complete = sum(trial.state == TrialState.COMPLETE for trial in own)
        parts.append(f"{name} {n_complete} of {len(own)}")
    return [
        f"Each method is the best of its complete trials: {', '.join(parts)}.",
        f"A difference is between options of {key} as each was tuned: the other searched keys have "
        "the values that were best for it, and may differ between the methods.",
    ]


def _of_ablations(methods: Mapping[str, object]) -> list[str]:
    """What the baseline, the best trial and its ablations show."""
    lines = []
    if "baseline" in methods:
        lines.append(
            "winner - baseline: what all values of the search do together, beside the untuned "
            "configuration; not which of them does it."
        )
    if without := [name for name in methods if name.startswith("without_")]:
        lines += [
            f"{', '.join(without)}: the winner with that key at its default. What it lacks beside "
            "the winner is what the key does; beside the baseline it shows what the others do.",
            "The tables compare with the baseline. To test one key, put baseline: winner here and "
            "give the study another --name; no run is done twice.",
        ]
    return lines
