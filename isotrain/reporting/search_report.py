"""Results of a search: `table.md`, `trials.csv`, a study to confirm the best trial."""

import shlex
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState
from pandas import DataFrame

from isotrain.console import say, score_text
from isotrain.reporting.markdown import aligned
from isotrain.reporting.numbers import number
from isotrain.reporting.report import in_force, replace_files
from isotrain.reporting.run_frames import csv_text
from isotrain.runs.stored import PlanError
from isotrain.studies.confirm import Confirmation, best_trial, confirmation
from isotrain.studies.search_plan import Plan
from isotrain.studies.trials import ASKED, BAD, NAMES, difference, ending

ENOUGH = 20  # complete trials from which on importances are shown: five in the best quarter
QUARTER = 0.25


def write_report(plan: Plan, trials: Sequence[FrozenTrial], study: optuna.Study) -> list[Path]:
    """Write and print the tables of a search so far; the files, equal for equal trials.

    Raises:
        PlanError: no trial has ended; nothing is written then.
    """
    if not any(trial.state.is_finished() for trial in trials):
        raise PlanError(f"no trial of search {plan.search.name} has ended in {plan.folder}")
    texts = {"trials.csv": _csv(plan, trials)}
    lines = [*_head(plan, study, trials), *_table(plan, trials), *_importances(plan, study, trials)]
    study_to_run = difference(study, plan) or confirmation(plan, trials)
    if isinstance(study_to_run, Confirmation):
        texts[study_to_run.file] = study_to_run.yaml
    lines += _best(plan, trials, study_to_run)
    texts["table.md"] = "\n".join(lines) + "\n"
    written = replace_files(plan.folder, {name: text.encode() for name, text in texts.items()})
    say(texts["table.md"])
    say(f"{plan.folder}: {', '.join(texts)}")
    return written


def _head(plan: Plan, study: optuna.Study, trials: Sequence[FrozenTrial]) -> list[str]:
    search, states = plan.search, Counter(map(ending, trials))
    names = ("complete", *BAD, *list(NAMES.values())[1:])
    counts = ", ".join(f"{states[name]} {name}" for name in names if states[name])
    n_asked = study.user_attrs.get(ASKED, search.n_trials)
    asked = f"{len(trials)} of {n_asked} trials"
    if plan.is_grid:
        points = {tuple(t.params.items()) for t in trials if t.state.is_finished()}
        asked = f"{len(points)} of {n_asked} points, {len(trials)} trials"
    side, end = ("below", "highest") if plan.direction == "max" else ("above", "lowest")
    how = {"tpe": f"tpe after {search.startup} trials at random", "grid": "grid, in order"}
    sampler = how.get(search.sampler, search.sampler)
    pruner = (
        f"runs of seed {search.seeds[0]} whose best score so far was {side} the median of at least "
        f"{search.startup} complete trials at an evaluation, from number {search.warmup + 1} on"
    )
    lines = [f"# Search {search.name}", "", f"{asked}: {counts}."]
    lines += ["", f"- every run: `{' '.join(in_force(plan.overrides))}`"]
    lines += [f"- {parameter.key}: {parameter.text}" for parameter in search.space]
    seeds = f", mean over seeds {', '.join(map(str, search.seeds))}" * (len(search.seeds) > 1)
    lines.append(f"- score: {plan.objective}, the {end} is best{seeds}")
    lines.append(f"- sampler: {sampler}, seed {search.seed}")
    lines += [f"- pruned: {pruner}" if search.pruner == "median" else "- pruned: none", ""]
    if len(code := sorted({c for trial in trials for c in trial.user_attrs.get("code", ())})) > 1:
        lines += [f"Runs of different code, whose scores may not compare: {', '.join(code)}.", ""]
    return lines


def _table(plan: Plan, trials: Sequence[FrozenTrial]) -> list[str]:
    """The complete trials from the best down, then the others by number."""
    sign = -1 if plan.direction == "max" else 1
    keys = [parameter.key for parameter in plan.search.space]
    ordered = sorted(
        trials, key=lambda t: (-1, sign * t.values[0]) if _is_good(t) else (0, t.number)
    )
    lines = [
        (
            str(trial.number),
            score_text(trial.values[0]) if _is_good(trial) else "",
            ending(trial),
            *(_short(trial.params.get(key, "")) for key in keys),
            str(trial.user_attrs.get("why", "")),
        )
        for trial in ordered
    ]
    return [*aligned([("trial", plan.objective, "state", *keys, "why"), *lines]), ""]


def _is_good(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE


def _short(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _importances(plan: Plan, study: optuna.Study, trials: Sequence[FrozenTrial]) -> list[str]:
    n_complete = sum(map(_is_good, trials))
    if n_complete < ENOUGH or len(plan.search.space) < 2:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parameters that few trials have
        shares = get_param_importances(
            study, evaluator=PedAnovaImportanceEvaluator(target_quantile=QUARTER)
        )
    listed = ", ".join(f"{key} {share:.2f}" for key, share in shares.items())
    return [
        f"Share of each key in what sets the best quarter of the {n_complete} complete trials "
        f"apart (PED-ANOVA, IJCAI 2023): {listed}.",
        "",
    ]


def _best(plan: Plan, trials: Sequence[FrozenTrial], study_to_run: Confirmation | str) -> list[str]:
    best = best_trial(trials, plan)
    if best is None:
        return ["No trial is complete, so there is no best one."]
    text = (
        f"Trial {best.number} is the best of {sum(map(_is_good, trials))} on dev "
        f"({score_text(best.values[0])}) and was chosen for that: the best of several scores lies "
        f"{'above' if plan.direction == 'max' else 'below'} what the same values reach again, so "
        "this is no result."
    )
    if isinstance(study_to_run, str):
        return [text, study_to_run]
    more = [*plan.folders, *(["--config-dir", plan.config_dir] if plan.config_dir else [])]
    return [
        f"{text} To compare {', '.join(study_to_run.methods)}, on dev and test, over seeds that "
        "the search has not used:",
        "",
        f"    isotrain run {shlex.join([str(plan.folder / study_to_run.file), *more])}",
        "",
        *(f"- {line}" for line in study_to_run.shows),
    ]


def _csv(plan: Plan, trials: Sequence[FrozenTrial]) -> str:
    scores = [plan.objective, *(f"seed_{k}" for k in plan.search.seeds)]
    keys = [parameter.key for parameter in plan.search.space]
    lines = []
    for trial in trials:
        own = [trial.values[0] if _is_good(trial) else None, *trial.user_attrs.get("scores", ())]
        line = {"trial": trial.number, "state": ending(trial), **trial.params}
        line |= dict(zip(scores, own, strict=False))
        lines.append(line | {"why": trial.user_attrs.get("why")})
    found = DataFrame(lines, columns=["trial", "state", *scores, *keys, "why"], dtype=object)
    return csv_text(found.astype(dict.fromkeys(scores, "float64")))
