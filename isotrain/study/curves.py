"""Isotropy through training, averaged over the seeds of an arm, for the page of a study."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence

from isotrain.keys import DEV, Place
from isotrain.pages.study_content import Curve, Estimate, Point
from isotrain.row_file import read_rows
from isotrain.study.results import DAMAGE, Run, read_place
from isotrain.study.statistics import summarize


def isotropy_curves(runs: Sequence[Run], metrics: Collection[str]) -> list[Curve]:
    """A curve for every task, arm and place of some metrics, from each run's `metrics.jsonl`.

    Each point is the mean over the seeds that were measured at that step, with its t interval; the
    end is that over the scores of the runs, which are of the weights that they kept. A file that
    cannot be read gives no points.
    """
    curves = []
    for task, arm in dict.fromkeys((run.task, run.arm) for run in runs):
        found: dict[Place, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        own = [run for run in runs if (run.task, run.arm) == (task, arm)]
        for run in own:
            for (place, step), value in _values(run, metrics).items():
                found[place][step].append(value)
        at_end = {p for run in own for key in run.scores if (p := read_place(key))}
        for place in sorted(
            {*found, *(p for p in at_end if p.rows == DEV and p.metric in metrics)}
        ):
            points = tuple(_point(step, values) for step, values in sorted(found[place].items()))
            n_rows = max(run.n_rows(place.key) or 0 for run in own)
            curves.append(Curve(task, arm, place, points, n_rows, _end(own, place)))
    return curves


def _end(runs: Sequence[Run], place: Place) -> Estimate | None:
    values = [run.scores[place.key] for run in runs if place.key in run.scores]
    if not values:
        return None
    found = summarize(values)
    return Estimate(found.n, found.mean, found.sd, found.low, found.high)


def _values(run: Run, metrics: Collection[str]) -> dict[tuple[Place, float], float]:
    """Finite values by place and step; of a step that was measured twice the last."""
    shown = tuple(f"{DEV}/{metric}/" for metric in metrics)
    try:
        return {
            (place, row["step"]): value
            for row in read_rows(run.folder / "metrics.jsonl")
            for key, value in row.items()
            if key.startswith(shown) and (place := read_place(key)) and math.isfinite(value)
        }
    except DAMAGE:
        return {}


def _point(step: float, values: Sequence[float]) -> Point:
    found = summarize(values)
    return Point(step, found.mean, found.low, found.high, found.n)
