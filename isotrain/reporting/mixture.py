"""Runs of one table that different code made, or that saw different data: told, never silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from isotrain.studies.results import Run


def mixtures(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What is mixed, with a text for the runs of each version; empty where nothing is.

    Judged are the code over all runs, and the revision of the data set within a task. One version
    of the code is told, too, where it had changes that were not committed: nobody can get it back.

    >>> one = Run("rte", "none", 0, {}, {}, code="0a1b+")
    >>> mixtures([one, one._replace(seed=1)])
    {'Code with changes not committed (+)': ['0a1b+: rte none 0, 1']}
    >>> mixtures([one, one._replace(arm="mean", code="2c3d")])
    {'Mixed code (+ = with changes not committed)': ['0a1b+: rte none 0', '2c3d: rte mean 0']}
    """
    found = {}
    code = _told(runs, lambda run: run.code)
    names = {name for run in runs for name in run.code.split(" > ")}  # of a run that was resumed
    if len(names) > 1:
        found["Mixed code (+ = with changes not committed)"] = code
    elif any("+" in name for name in names):
        found["Code with changes not committed (+)"] = code
    for task in dict.fromkeys(run.task for run in runs):
        data = _told([run for run in runs if run.task == task], lambda run: run.data)
        if len(data) > 1:
            found[f"Mixed revisions of the data of {task}"] = data
    return found


def _told(runs: Sequence[Run], version: Callable[[Run], str]) -> list[str]:
    lines = []
    for name in sorted(set(map(version, runs))):
        same = [run for run in runs if version(run) == name]
        by_arm = groupby(same, lambda run: (run.task, run.arm))
        places = [f"{' '.join(arm)} {_ranges(run.seed for run in own)}" for arm, own in by_arm]
        lines.append(f"{name or 'unknown'}: {'; '.join(places)}")
    return lines


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers with runs of three or more as their ends.

    >>> _ranges([0, 1, 2, 3, 5, 8, 9])
    '0–3, 5, 8, 9'
    """
    ordered = sorted(set(numbers))
    parts: list[str] = []
    for _, block in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]):
        own = [number for _, number in block]
        parts += [f"{own[0]}–{own[-1]}"] if len(own) > 2 else map(str, own)
    return ", ".join(parts)
