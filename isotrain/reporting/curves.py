"""Isotropy through training, averaged over the seeds of an arm, for the page of a study."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from isotrain.pages.study_content import Curve, Estimate, Point
from isotrain.reporting.statistics import Summary, compare_paired, summarize
from isotrain.runs.files import read_records
from isotrain.runs.keys import DEV, CurveKey
from isotrain.studies.results import DAMAGE, Run, read_key

Of = tuple[str, str, CurveKey]  # task and arm, and where it was measured
BySeed = Mapping[int, float]
NOTHING: BySeed = MappingProxyType({})


def isotropy_curves(runs: Sequence[Run], metrics: Collection[str], baseline: str) -> list[Curve]:
    """A curve for every task, arm and cloud of some metrics, from each run's `metrics.jsonl`.

    Each point is the mean over the seeds that were measured at that step; the end is that over the
    scores of the runs, which are of the weights that they kept. The interval of the baseline, and
    where that has no value, is the t interval over seeds; another arm has that of its difference
    to the baseline, paired by seed, moved to the arm's mean: over equal seeds it leaves out the
    baseline's mean where the paired t test finds p < 0.05. A file that cannot be read gives no
    points.
    """
    found: dict[Of, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    ends: dict[Of, dict[int, float]] = defaultdict(dict)
    for run in runs:
        for (curve_key, step), value in _values(run, metrics).items():
            found[run.task, run.arm, curve_key][step][run.seed] = value
        for key, value in run.scores.items():
            if (at := read_key(key)) and at.rows == DEV and at.metric in metrics:
                ends[run.task, run.arm, at][run.seed] = value
    order = list(dict.fromkeys((run.task, run.arm) for run in runs))
    curves = []
    for of in sorted({*found, *ends}, key=lambda of: (order.index(of[:2]), of[2])):
        task, arm, curve_key = of
        base = (task, "" if arm == baseline else baseline, curve_key)  # the baseline has none
        points = []
        for step, values in sorted(found.get(of, {}).items()):
            own = _around(values, found.get(base, {}).get(step, NOTHING))
            points.append(Point(step, own.mean, own.low, own.high, own.n))
        end = _around(ends[of], ends.get(base, NOTHING)) if of in ends else None
        n_rows = max(
            run.n_rows(curve_key.text) or 0 for run in runs if (run.task, run.arm) == of[:2]
        )
        curves.append(
            Curve(task, arm, curve_key, tuple(points), n_rows, Estimate(*end[:5]) if end else None)
        )
    return curves


def _around(values: BySeed, baseline: BySeed) -> Summary:
    """The mean over seeds, with the interval of its difference to the baseline where there is one.

    >>> own = _around({0: 0.1, 1: 0.2}, {0: 0.0, 1: 0.1})  # alike on every seed: no interval
    >>> f"{own.mean:.2f}", own.low
    ('0.15', None)
    """
    own = summarize(list(values.values()))
    shared = [seed for seed in values if seed in baseline]
    if not shared:
        return own
    both = [[by_seed[seed] for seed in shared] for by_seed in (values, baseline)]
    about = compare_paired(both[0], both[1]).difference
    if about.low is None or about.high is None:
        return own._replace(low=None, high=None)
    half = (about.high - about.low) / 2
    return own._replace(low=own.mean - half, high=own.mean + half)


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
