"""Isotropy through training, averaged over the seeds of a method, for the page of a study."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from isotrain.results.runs import DAMAGE, Run, read_key
from isotrain.results.statistics import Summary, summarize
from isotrain.runs.files import read_records
from isotrain.runs.keys import DEV, CurveKey

Of = tuple[str, str, CurveKey]  # task and method, and where it was measured


class Curve(NamedTuple):
    """One metric of one cloud and method through training; each value a mean with its 95 % CI."""

    task: str
    method: str
    key: CurveKey
    points: Mapping[float, Summary]  # by step
    n_rows: int = 0  # N of each evaluation; 0 where it is not known
    end: Summary | None = None  # of the weights that the runs kept


def isotropy_curves(runs: Sequence[Run], metrics: Collection[str]) -> list[Curve]:
    """A curve for every task, method and cloud of some metrics, from each run's `metrics.jsonl`.

    Each point is the mean over the seeds that were measured at that step, with its own 95 % CI; the
    end is over the scores of the runs, which are of the weights that they kept. A file that cannot
    be read gives no points.
    """
    found: dict[Of, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    ends: dict[Of, list[float]] = defaultdict(list)
    for run in runs:
        for (key, step), value in _values(run, metrics).items():
            found[run.task, run.method, key][step].append(value)
        for text, value in run.scores.items():
            if (at := read_key(text)) and at.rows == DEV and at.metric in metrics:
                ends[run.task, run.method, at].append(value)
    order = list(dict.fromkeys((run.task, run.method) for run in runs))
    curves = []
    for of in sorted({*found, *ends}, key=lambda of: (order.index(of[:2]), of[2])):
        own = [run for run in runs if (run.task, run.method) == of[:2]]
        points = {step: summarize(values) for step, values in sorted(found.get(of, {}).items())}
        n_rows = max(run.n_rows(of[2].text) or 0 for run in own)
        curves.append(Curve(*of, points, n_rows, summarize(ends[of]) if of in ends else None))
    return curves


def _values(run: Run, metrics: Collection[str]) -> dict[tuple[CurveKey, float], float]:
    """Finite values by key and step; of a step that was measured twice the last."""
    shown = tuple(f"{DEV}/{metric}/" for metric in metrics)
    try:
        return {
            (curve_key, row["step"]): value
            for row in read_records(run.folder / "metrics.jsonl")
            for key, value in row.items()
            if key.startswith(shown) and (curve_key := read_key(key)) and math.isfinite(value)
        }
    except DAMAGE:
        return {}
