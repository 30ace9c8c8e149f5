"""Isotropy through training, averaged over the seeds of a method, for the page of a study."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from isotrain.results.runs import DAMAGE, Run, read_key
from isotrain.results.statistics import Summary, summarize
from isotrain.runs.files import read_records
from isotrain.runs.keys import DEV, CurveKey


class Curve(NamedTuple):
    """One metric of one cloud and method through training; each value a mean with its 95 % CI."""

    task: str
    method: str
    key: CurveKey
    points: Mapping[float, Summary]  # by step
    end: Summary | None = None  # of the weights that the runs kept


def isotropy_curves(runs: Sequence[Run], metrics: Collection[str]) -> list[Curve]:
    """A curve for every task, method and cloud of some metrics, from each run's `metrics.jsonl`.

    Each point is the mean over the seeds measured at that step, with its 95 % CI. The end is the
    mean over the scores of the runs, which belong to the weights that they kept. A file that cannot
    be read gives no points.
    """
    prefixes = tuple(f"{DEV}/{metric}/" for metric in metrics)
    methods: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        methods.setdefault((run.task, run.method), []).append(run)
    curves = []
    for (task, method), method_runs in methods.items():
        points: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        finals: dict[str, list[float]] = defaultdict(list)
        for run in method_runs:
            for (text, step), value in _values(run, prefixes).items():
                points[text][step].append(value)
            for text, value in run.scores.items():
                if text.startswith(prefixes):
                    finals[text].append(value)
        keys = {key: text for text in {*points, *finals} if (key := read_key(text))}
        for key, text in sorted(keys.items()):
            summaries = {step: summarize(values) for step, values in sorted(points[text].items())}
            end = summarize(finals[text]) if text in finals else None
            curves.append(Curve(task, method, key, summaries, end))
    return curves


def _values(run: Run, starts: tuple[str, ...]) -> dict[tuple[str, float], float]:
    """Finite values by key and step; of a step measured twice, the last one."""
    try:
        rows = read_records(run.folder / "metrics.jsonl")
    except DAMAGE:
        return {}
    keys = [key for key in set().union(*rows) if key.startswith(starts)]
    triples = ((key, row["step"], row.get(key, math.nan)) for row in rows for key in keys)
    return {(key, step): value for key, step, value in triples if math.isfinite(value)}
