"""Scores over training sizes: their means, and how much more data other features need."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scipy.optimize import isotonic_regression  # type: ignore[import-untyped]

from isotrain.analysis.types import Record

ENCODER, STATIC, RANDOM = "encoder", "static", "random"
FEATURES = (ENCODER, STATIC, RANDOM)
LEAST_FACTOR = 2.0  # of the data there are: below it "not reached" says nothing


class Point(NamedTuple):
    """A score at a training size: mean over n seeds, their deviation, a 95 % interval."""

    n: int
    mean: float
    sd: float | None  # None for one seed
    low: float | None  # None where nothing varies
    high: float | None

    @property
    def ends(self) -> tuple[float, float, float]:
        """The mean between the ends of its interval; without one the mean itself."""
        if self.low is None or self.high is None:
            return (self.mean,) * 3
        return self.low, self.mean, self.high


Curve = Mapping[int, Point]  # by size, rising


def named(records: Sequence[Record]) -> Iterator[tuple[str, Record]]:
    """Records with the name of the curve that they are of.

    They are called encoder, static, random; with several weights the encoder has a curve for
    each (`encoder before`), and the others one, as their vectors are the same.
    """
    weights = list(dict.fromkeys(str(r["weights"]) for r in records))
    for feature in FEATURES:
        for one in weights if feature == ENCODER else weights[:1]:
            name = f"{feature} {one}" if len(weights) > 1 and feature == ENCODER else feature
            for r in records:
                if r["features"] == feature and r["weights"] == one:
                    yield name, r


def curves(
    records: Sequence[Record], kind: str = "mean", by: str = "task"
) -> dict[str, dict[str, Curve]]:
    """The curves of each task (or of another key), by name."""
    own = [r for r in records if r["kind"] == kind]
    found: dict[str, dict[str, dict[int, Point]]] = {str(r[by]): {} for r in own}
    for name, r in named(own):
        low, high, sd = (
            None if r[key] is None else _number(r, key) for key in ("low", "high", "sd")
        )
        point = Point(int(_number(r, "n_seeds")), _number(r, "mean"), sd, low, high)
        found[str(r[by])].setdefault(name, {})[int(_number(r, "size"))] = point
    return {
        one: {name: dict(sorted(curve.items())) for name, curve in own_curves.items()}
        for one, own_curves in found.items()
    }


def about(records: Sequence[Record], task: str) -> Record:
    """The facts of a task: those of the first features that were measured on it."""
    return next(r for r in records if r["kind"] == "features" and r["task"] == task)


def measure(task: str) -> str:
    """What the scores of a task are."""
    return "F1 of entities" if task == "conll" else "accuracy"


def rising(values: Sequence[float]) -> list[float]:
    """The nearest values, in squares, that never fall: neighbours that do share their mean.

    >>> rising([1.0, 4.0, 2.0, 5.0])
    [1.0, 3.0, 3.0, 5.0]
    """
    found: list[float] = isotonic_regression(values).x.tolist()
    return found


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
    """How many times the data of another curve a curve needs, in words; None = not known."""

    value: str | None
    least: str | None
    most: str | None


def data_factor(curve: Curve, reference: Curve, size: int) -> Factor:
    """How many times the data of the reference at `size` a curve needs for its score.

    `value` is from the means of both; `least` from the upper ends of the curve's 95 % intervals
    and the lower end of the reference's, `most` from the other ends; all made `rising` over the
    sizes. `> x`: not reached with x times the data, which is all, and None where x is below 2;
    `≤ x`: reached at the smallest size.

    >>> own = {32: Point(2, 0.55, 0.01, 0.5, 0.6), 128: Point(2, 0.7, 0.0, None, None)}
    >>> reference = {32: Point(2, 0.6, 0.0, None, None), 128: Point(2, 0.8, 0.0, None, None)}
    >>> data_factor(own, reference, 32)
    Factor(value='1.59', least='≤ 1', most='2')
    """

    def told(side: int, goal_side: int) -> str | None:
        means, goals = (
            dict(zip(one, rising([point.ends[at] for point in one.values()]), strict=True))
            for one, at in ((curve, side), (reference, goal_side))
        )
        factor = size_to_reach(means, goals[size]) / size
        if math.isinf(factor):
            largest = max(curve) / size
            return f"> {largest:.3g}" if largest >= LEAST_FACTOR else None
        return f"{'≤ ' * (factor == min(curve) / size)}{factor:.3g}"

    if all(point.low is None for point in (*curve.values(), reference[size])):
        return Factor(told(1, 1), None, None)
    return Factor(told(1, 1), told(2, 0), told(0, 2))


def _number(record: Record, key: str) -> float:
    return float(record[key] or 0)
