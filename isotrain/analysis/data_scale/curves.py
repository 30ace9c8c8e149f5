"""Scores over training sizes: their means, and how much more data other features need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from isotrain.analysis.types import Record
from isotrain.reporting.statistics import Summary, summarize

ENCODER, STATIC, RANDOM = "encoder", "static", "random"
FEATURES = (ENCODER, STATIC, RANDOM)

Curve = dict[int, list[float]]  # size -> scores of the seeds, in the order of the seeds


def curves(records: Sequence[Record], column: str = "score") -> dict[str, dict[str, Curve]]:
    """The curves of each task, by name.

    They are called encoder, static, random; with several weights the encoder has a curve for
    each (`encoder before`), and the others one, as their vectors are the same.
    """
    scores = [r for r in records if r["kind"] == "score" and r[column] is not None]
    weights = list(dict.fromkeys(str(r["weights"]) for r in scores))
    found: dict[str, dict[str, Curve]] = {}
    for feature in FEATURES:
        for one in weights if feature == ENCODER else weights[:1]:
            name = f"{feature} {one}" if len(weights) > 1 and feature == ENCODER else feature
            for r in scores:
                if r["features"] == feature and r["weights"] == one:
                    curve = found.setdefault(str(r["task"]), {}).setdefault(name, {})
                    curve.setdefault(int(r["size"] or 0), []).append(float(r[column] or 0))
    return found


def summaries(curve: Curve) -> dict[int, Summary]:
    """Mean, deviation and t interval over the seeds, at each size."""
    return {size: summarize(scores) for size, scores in sorted(curve.items())}


def about(records: Sequence[Record], task: str) -> Record:
    """The facts of a task: those of the first features that were measured on it."""
    return next(r for r in records if r["kind"] == "features" and r["task"] == task)


def measure(task: str) -> str:
    """What the scores of a task are."""
    return "F1 of entities" if task == "conll" else "accuracy"


def size_to_reach(means: Mapping[int, float], score: float) -> float:
    """The training size at which a curve first has a score, straight over ln size in between.

    The smallest size where it is there already, infinity where it never is.

    >>> size_to_reach({32: 0.5, 128: 0.7}, 0.6)
    64.0
    """
    points = sorted(means.items())
    before = points[0]
    for size, mean in points:
        if mean >= score:
            if size == before[0]:
                return float(size)
            share = (score - before[1]) / (mean - before[1])
            return round(math.exp(math.log(before[0]) + share * math.log(size / before[0])), 6)
        before = size, mean
    return math.inf


class Factor(NamedTuple):
    """How many times the data of another curve a curve needs, in words; None = not defined."""

    value: str | None
    least: str | None
    most: str | None


def data_factor(curve: Curve, reference: Curve, size: int) -> Factor:
    """How many times the data of the reference at `size` a curve needs for its score.

    `value` is from the means of both; `least` from the upper ends of the curve's 95 % intervals
    and the lower end of the reference's, `most` from the other ends. `> x`: not reached with x
    times the data, which is all; `≤ x`: reached at the smallest size.

    >>> data_factor({32: [0.5, 0.6], 128: [0.7, 0.7]}, {32: [0.6, 0.6], 128: [0.8, 0.8]}, 32)
    Factor(value='1.59', least='≤ 1', most='3.35')
    """
    own, goal = summaries(curve), summaries(reference)[size]

    def told(side: int, goal_side: int) -> str:
        means = {s: _ends(one)[side] for s, one in own.items()}
        factor = size_to_reach(means, _ends(goal)[goal_side]) / size
        if math.isinf(factor):
            return f"> {max(curve) / size:.3g}"
        return f"{'≤ ' * (factor == min(curve) / size)}{factor:.3g}"

    if goal.n == 1:
        return Factor(told(1, 1), None, None)
    return Factor(told(1, 1), told(2, 0), told(0, 2))


def _ends(summary: Summary) -> tuple[float, float, float]:
    """The ends of an interval around the mean; of equal values the value itself."""
    low, high = summary.low, summary.high
    if low is None or high is None:
        return (summary.mean,) * 3
    return low, summary.mean, high
