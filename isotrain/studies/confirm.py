"""The study that tests, on new seeds, whether the best configuration of a search is better."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from isotrain.config.check import check
from isotrain.config.compose import ConfigError, content_hash, key_of
from isotrain.studies.search import Confirmation, Record, trials_of
from isotrain.studies.space import Parameter, overrides_of
from isotrain.studies.trials import alone

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Compose = Callable[[Sequence[str]], DictConfig]  # overrides to the configuration of a run
N_SEEDS = 8  # from this number on, paired differences are tested by sign flips
NOTHING = (
    "There is nothing to compare it with: its values are those of the overrides alone, or a run "
    "needs them."
)
COMPARED = ("isotropy", "objective")  # groups that a search compares by default
PLACES = ("output_dir", "cache_dir", "rerun")  # keys of the command line that no file names


def confirm(folder: Path, storage: str | None, compose: Compose) -> None:
    """Record the study that confirms the best trial so far; `storage` is that of the search."""
    with alone(folder):
        record, trials = trials_of(folder, storage)
        n_ended = sum(trial.state.is_finished() for trial in trials)
        own = {"confirmation": confirmation(record, trials, compose), "n_confirmed": n_ended}
        record.model_copy(update=own).write()


def is_complete(trial: FrozenTrial) -> bool:
    """Whether it has a score."""
    return trial.state.name == "COMPLETE" and bool(trial.values)


def best_trial(trials: Sequence[FrozenTrial], direction: str) -> FrozenTrial | None:
    """The complete trial with the best score, the first of ties; None if none is complete."""
    sign = 1 if direction == "max" else -1
    complete = filter(is_complete, trials)
    return max(complete, key=lambda t: (sign * t.values[0], -t.number), default=None)


def confirmation(
    record: Record, trials: Sequence[FrozenTrial], compose: Compose
) -> Confirmation | str:
    """A study of the best trial per option of a key, or of the best trial and its ablations.

    If there is none, a sentence says why. Options are compared if the search sets `compare`, or
    searches `isotropy` or `objective`, and two of them have a complete trial. Otherwise the
    baseline has only the overrides, and `without_<leaf>` is the best trial with one searched key
    at its default. `compose` is that of a running call: Hydra composes for one at a time.
    """
    search, space = record.search, record.search.parameters
    best = best_trial(trials, record.direction)
    if best is None:
        return NOTHING
    if record.objective != record.monitored:
        score = f", {record.monitored}" if record.monitored else ""
        return (
            f"No study is written to confirm it: a study compares what the task monitors{score}, "
            f"and the trials were chosen by {record.objective}."
        )
    options = [p.key for p in space if p.options and not p.when]
    key = search.compare or next((key for key in COMPARED if key in options), "")
    chosen = _best_of_each(next((p for p in space if p.key == key), None), record.direction, trials)
    if len(chosen) > 1:
        methods = _different(
            record, compose, {name: trial.params for name, trial in chosen.items()}
        )
        shows = _of_options(key, trials, chosen)
    else:
        chosen, without = {"winner": best}, _without(space, best.params)
        methods = _different(record, compose, {"baseline": {}, "winner": best.params, **without})
        shows = _of_ablations(methods)
    if len(methods) < 2 or (len(chosen) == 1 and "winner" not in methods):
        return NOTHING
    numbers = [str(trial.number) for trial in chosen.values()]
    seeds = list(islice((k for k in count() if k not in search.seeds), N_SEEDS))
    fixed = [text for text in _fixed(record) if key_of(text) not in PLACES]
    task = [text for text in fixed if key_of(text) == "task"]
    which = f"Trial{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
    made = (
        f"{which} of the {len(trials)} of search {search.name}, chosen by {record.objective}. The "
        "best of several scores is better than what the same values reach again, so the runs here "
        "have other seeds."
    )
    lines = [
        f"# Question: does what search {search.name} found hold on seeds it has not used?",
        f"# Chosen:   {made}",
        *(f"# Shows:    {line}" for line in shows),
        f"overrides: {json.dumps([text for text in fixed if text not in task])}",
        f"tasks: {{{json.dumps(record.task)}: {json.dumps(task)}}}",
        "methods:",
        *(f"  {json.dumps(method)}: {json.dumps(own)}" for method, own in methods.items()),
        f"baseline: {json.dumps(next(iter(methods)))} # that each other method is compared with",
        f"seeds: {seeds} # none of the search",
    ]
    if search.margin is not None:
        lines.append(f"margin: {search.margin} # of the search's file: closer counts as equal")
    file = f"{'_'.join(['confirm', search.name, *numbers])}.yaml"
    return Confirmation(
        file=file, yaml="\n".join(lines) + "\n", methods=tuple(methods), shows=tuple(shows)
    )


def _fixed(record: Record) -> list[str]:
    return [*record.search.overrides, *record.overrides]


def _best_of_each(
    compared: Parameter | None, direction: str, trials: Sequence[FrozenTrial]
) -> dict[str, FrozenTrial]:
    """The best trial of each option of the key to compare, by a valid method name."""
    found = {}
    for option in compared.options if compared else ():
        own = [t for t in trials if compared and t.params.get(compared.key) == option]
        if best := best_trial(own, direction):
            found[re.sub(r"[^A-Za-z0-9.]+", "_", option).strip("_.") or "none"] = best
    return found


def _without(space: Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Ablations of `values`, by method name: without one key and the keys conditional on it."""
    leaves = Counter(key.rpartition(".")[2] for key in values)
    found = {}
    for left_out in values:
        kept: dict[str, Any] = {}
        for p in space:
            if p.key in values and p.key != left_out and p.is_active(kept):
                kept[p.key] = values[p.key]
        leaf = left_out.rpartition(".")[2]
        found[f"without_{leaf if leaves[leaf] == 1 else left_out}"] = kept
    return found


def _different(
    record: Record, compose: Compose, methods: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Overrides of the methods that can run and do not duplicate an earlier one."""
    found: dict[str, list[str]] = {}
    known = set()
    for name, values in methods.items():
        own = overrides_of(values)
        try:
            cfg = compose([*_fixed(record), *own])
            check(cfg)
        except ConfigError:
            continue
        if (content := content_hash(cfg)) not in known:
            known.add(content)
            found[name] = own
    return found


def _of_options(
    key: str, trials: Sequence[FrozenTrial], chosen: Mapping[str, FrozenTrial]
) -> list[str]:
    """What the best trials per option show, and how many trials each option had."""
    parts = []
    for name, best in chosen.items():
        own = [trial for trial in trials if trial.params.get(key) == best.params[key]]
        parts.append(f"{name} {sum(map(is_complete, own))} of {len(own)}")
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
        lines.append(
            f"{', '.join(without)}: the winner with that key at its default. What it lacks beside "
            "the winner is what the key does; to test it, put baseline: winner into a copy."
        )
    return lines
