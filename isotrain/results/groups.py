"""Group finished runs by what they compute: equal configurations except for the seed."""

import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from isotrain.config.compose import without_locations
from isotrain.results.frame import ALL, Row, numbers
from isotrain.results.names import CI, examples_text, score_name
from isotrain.results.runs import Run
from isotrain.results.statistics import summarize
from isotrain.results.words import mean_text
from isotrain.runs.keys import on_test

HEADING = ("task", "method", "dev score", "N", "n", f"mean ± {CI}", "on test", "what differs")


class FinishedRun(NamedTuple):
    """A finished run and what it computes, as dotted keys with texts for values."""

    run: Run
    keys: Mapping[str, str]
    search: str = ""  # of which it is a trial
    names: Mapping[str, str] = MappingProxyType({})  # of its parts, by group


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Content of a recorded configuration: dotted keys with text values.

    >>> texts({"task": {"form": "bi"}, "site": ["pooled"], "frozen": True, "logger": {"a": 1}})
    {'task.form': 'bi', 'site': '["pooled"]', 'frozen': 'true'}
    """
    content = without_locations(config)
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in content.items()}


def differing(entries: Sequence[FinishedRun]) -> list[dict[str, str]]:
    """The keys that differ between runs, with each run's value; empty if it has none.

    A seed that equals the run's seed in every run, such as a layer's, is left out.
    """
    keys = dict.fromkeys(key for entry in entries for key in entry.keys)
    names = [
        name
        for name in sorted(keys)
        if len({entry.keys.get(name) for entry in entries}) > 1
        and not all(_follows_seed(name, entry.keys.get(name), entry) for entry in entries)
    ]
    return [{name: entry.keys.get(name, "") for name in names} for entry in entries]


def _follows_seed(name: str, value: str | None, entry: FinishedRun) -> bool:
    return name.split(".")[-1] == "seed" and value in (None, str(entry.run.seed))


def group_table(entries: Sequence[FinishedRun]) -> list[tuple[str, ...]]:
    """Groups with n and mean ± 95 % CI of the monitored score over seeds; header first, else empty.

    A group shares task, method, data revision and keys; a part's seed that is the run's counts as
    equal. `on test` is the same score on test, with its N. `what differs` names the keys that
    distinguish a group from the others of its task.
    """
    is_named = all(e.names for e in entries)  # a run from Python has no names of its parts
    groups: dict[tuple[Any, ...], list[FinishedRun]] = {}
    values: dict[str, dict[str, set[str]]] = {}  # by task and key
    for entry, differences in zip(entries, differing(entries), strict=True):
        part_names = {f"{part}._target_": name for part, name in entry.names.items() if is_named}
        keys = dict(sorted((differences | part_names).items())) | {"data": entry.run.data}
        keys |= dict.fromkeys((k for k in keys if _follows_seed(k, keys[k], entry)), "seed")
        groups.setdefault((entry.run.task, entry.run.method, *keys.items()), []).append(entry)
        for key, value in keys.items():
            values.setdefault(entry.run.task, {}).setdefault(key, set()).add(value)
    lines = []
    for (task, method, *key_items), members in sorted(groups.items()):
        labels = _distinguishing_keys(dict(key_items), values[task])
        score_cells = _score_cells([member.run for member in members])
        lines.append((task, method, *score_cells, ", ".join(labels)))
    return [HEADING, *lines] if lines else []


def without_seeds(keys: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What a run computes, without its seed and equal seeds of its parts."""
    seed = keys.get("seed")
    pairs = {(k, v) for k, v in keys.items() if k.split(".")[-1] != "seed" or v != seed}
    return frozenset(pairs)


def _distinguishing_keys(keys: Mapping[str, str], values: Mapping[str, set[str]]) -> list[str]:
    """Keys that distinguish one configuration from the others; components by their names."""
    parts = [name.removesuffix("_target_") for name in keys if name.endswith("_target_")]
    parts = [part.removesuffix("function.") for part in parts]  # for a metric
    labels = []
    for name, value in keys.items():
        task_values = values[name]
        is_of_part = "" in task_values and len(task_values) == 2 and name.startswith(tuple(parts))
        if len(task_values) < 2 or not value:
            continue
        if name.endswith("_target_"):
            part = next(part for part in reversed(parts) if name.startswith(part)).removesuffix(".")
            group, _, option = part.partition(".")
            labels.append(f"{group}={option or value.rpartition('.')[2]}")
        elif not is_of_part:
            labels.append(f"{name}={value}")
    return labels


def _score_cells(runs: Sequence[Run]) -> tuple[str, ...]:
    """The monitored score, and the same score on test if there is one."""
    monitor = runs[0].monitor
    dev, test = (_row(runs, key) for key in (monitor, on_test(monitor)))
    n_text = "" if test.n == dev.n else f", n = {test.n}"
    test_text = f"{mean_text(test)} ({examples_text(test.examples)}{n_text})" if test.n else ""
    examples = examples_text(dev.examples).removeprefix("N = ")
    name = ", ".join(filter(None, (score_name(monitor), dev.best_of and f"best of {dev.best_of}")))
    return (name, examples, str(dev.n), mean_text(dev), test_text)


def _row(runs: Sequence[Run], key: str) -> Row:
    """Mean of a score over the seeds that have it."""
    members = [run for run in runs if key in run.scores]
    examples = numbers(run.shown.get(key, 0) for run in members)
    summary = summarize([run.scores[key] for run in members])[:5] if members else (0, math.nan)
    best_of = numbers(run.n_candidates for run in members if run.is_best_of(key))
    row = Row(ALL, runs[0].task, key, runs[0].method, examples, *summary)
    return row._replace(best_of=best_of)
