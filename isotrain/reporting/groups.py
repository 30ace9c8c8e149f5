"""Finished runs grouped by what they compute: equal configurations but for the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from isotrain.config.schema import NOT_CONTENT
from isotrain.reporting.cells import number, spread
from isotrain.reporting.markdown import aligned
from isotrain.reporting.statistics import summarize
from isotrain.studies.results import Run

HEADING = ("task", "arm", "dev score", "N", "n", "mean", "sd", "95 % interval", "test mean")
TELLING = "what differs"


class Found(NamedTuple):
    """A finished run and what it computes, as dotted keys with texts for values."""

    run: Run
    keys: Mapping[str, str]
    search: str = ""  # that it is a trial of


def flat_config(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Dotted keys of a configuration without those that change no number.

    >>> flat_config({"task": {"form": "bi"}, "site": ["pooled"], "sync": True, "logger": {"a": 1}})
    {'task.form': 'bi', 'site': '["pooled"]', 'sync': 'true'}
    """
    found: dict[str, str] = {}
    for name, value in config.items():
        key = f"{path}{name}"
        if key in NOT_CONTENT:
            continue
        if isinstance(value, Mapping) and value:
            found |= flat_config(value, f"{key}.")
        else:
            found[key] = value if isinstance(value, str) else json.dumps(value)
    return found


def differing(found: Sequence[Found]) -> list[dict[str, str]]:
    """Of every run the keys that differ between them, empty where it has none.

    A seed that is the run's own in every run, as that of a layer may be, is left out.
    """
    names = dict.fromkeys(key for one in found for key in one.keys)
    kept = [
        name
        for name in sorted(names)
        if len({one.keys.get(name) for one in found}) > 1
        and not (name.split(".")[-1] == "seed" and _is_the_seed(name, found))
    ]
    return [{name: one.keys.get(name, "") for name in kept} for one in found]


def groups_markdown(found: Sequence[Found], keys: Sequence[Mapping[str, str]]) -> str:
    """A table of the groups: n, mean, sd and t interval of the monitored score over seeds.

    A group is a task, an arm, a revision of the data and equal `keys`. `test mean` is that of the
    same score on test, with its N. `what differs` names the keys that tell a group from any other
    of its task.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for k, (run, *_) in enumerate(found):
        group = (run.task, run.arm, tuple(keys[k].items()), run.data)
        groups.setdefault(group, []).append(k)
    values: dict[str, dict[str, set[str]]] = {}  # of each task and key
    data_of: dict[str, set[str]] = {}
    for task, _, own, data in groups:
        data_of.setdefault(task, set()).add(data)
        for key, value in own:
            values.setdefault(task, {}).setdefault(key, set()).add(value)
    lines = []
    for (task, arm, own, data), members in sorted(groups.items()):
        tells = _telling(dict(own), values.get(task, {}))
        tells += [f"data={data}"] if len(data_of[task]) > 1 else []
        scored = _scored([found[k].run for k in members])
        lines.append((task, arm, *scored, ", ".join(tells)))
    return "\n".join(aligned([(*HEADING, TELLING), *lines])) + "\n"


def without_seeds(keys: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What a run computes but for its seed, and for the seeds of parts that are the same.

    >>> without_seeds({"seed": "3", "isotropy.seed": "3", "lr": "1"})
    frozenset({('lr', '1')})
    """
    seed = keys.get("seed")
    own = {(k, v) for k, v in keys.items() if k.split(".")[-1] != "seed" or v != seed}
    return frozenset(own)


def _is_the_seed(name: str, found: Sequence[Found]) -> bool:
    return all(one.keys.get(name) in (None, str(one.run.seed)) for one in found)


def _telling(own: Mapping[str, str], values: Mapping[str, set[str]]) -> list[str]:
    """What tells one of several configurations: keys whose values differ, parts by their class.

    Of a part that others lack, arguments that never differ are left out. `values` has those of
    every key, "" where a configuration has no such key.

    >>> values = {"a._target_": {"x.A", ""}, "a.n": {"1", ""}, "lr": {"5", "6"}}
    >>> _telling({"a._target_": "x.A", "a.n": "1", "lr": "5"}, values)
    ['a=A', 'lr=5']
    >>> _telling({"a._target_": "", "a.n": "", "lr": "6"}, values)
    ['lr=6']
    """
    parts = [name.removesuffix("_target_") for name in own if name.endswith("_target_")]
    parts = [part.removesuffix("function.") for part in parts]  # of a metric
    found = []
    for name, value in own.items():
        among = values[name]
        of_a_part = "" in among and len(among) == 2 and name.startswith(tuple(parts))
        if name.endswith("_target_"):
            if len(among) > 1 and value:
                part = next(part for part in reversed(parts) if name.startswith(part))
                found.append(f"{part.removesuffix('.')}={value.rpartition('.')[2]}")
        elif len(among) > 1 and value and not of_a_part:
            found.append(f"{name}={value}")
    return found


def _scored(runs: Sequence[Run]) -> tuple[str, ...]:
    monitor = runs[0].monitor
    values = [run.scores[monitor] for run in runs if monitor in run.scores]
    sizes = " or ".join(map(str, sorted({run.shown[monitor] for run in runs})))
    test = _test_mean(runs, monitor.replace("val/", "test/"), len(values))
    if not values:
        return (monitor, sizes, "0", "", "", "", test)
    return (monitor, sizes, str(len(values)), *spread(summarize(values)), test)


def _test_mean(runs: Sequence[Run], key: str, n_dev: int) -> str:
    """Mean over seeds with its N, and n where that is another one than on dev; may be empty."""
    values = [run.scores[key] for run in runs if key in run.scores]
    if not values:
        return ""
    sizes = " or ".join(map(str, sorted({run.n_rows(key) or 0 for run in runs})))
    fewer = "" if len(values) == n_dev else f", n = {len(values)}"
    return f"{number(fmean(values))} (N = {sizes}{fewer})"
