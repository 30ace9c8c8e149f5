"""A curve in a few numbers: where it ended, its best value, its mean height."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

from isotrain.arguments import checked


@checked
def curve_summary(
    points: Iterable[tuple[float, float]], mode: Literal["max", "min", None] = None
) -> dict[str, float]:
    """`final`, `area` and, with a mode, `best` and `best_step` of a series of (step, value).

    - `final`: the value at the highest step, NaN where that is not finite
    - `area`: ∫ value d step over the range of steps, by trapezoids, divided by that range: the mean
      height of the curve, in the unit of the values; of a single point its value
    - `best`: the highest (max) or lowest (min) value, at `best_step`, the first that has it

    `area` and `best` leave out values that are not finite and join the points beside them. Points
    come in any order; of several at one step the last counts. Empty where there is no point.

    Raises:
        ValueError: another mode.

    >>> curve_summary([(0, 1.0), (10, 3.0), (40, 3.0)], mode="max")
    {'final': 3.0, 'area': 2.75, 'best': 3.0, 'best_step': 10}
    """
    values = sorted(dict(points).items())
    if not values:
        return {}
    last = values[-1][1]
    found = {"final": last if math.isfinite(last) else math.nan}
    finite = [(step, value) for step, value in values if math.isfinite(value)]
    if not finite:
        return found
    width = finite[-1][0] - finite[0][0]
    areas = [(b - a) * (low + high) / 2 for (a, low), (b, high) in pairwise(finite)]
    found["area"] = math.fsum(areas) / width if width else finite[0][1]
    if mode is not None:
        sign = 1 if mode == "max" else -1
        step, value = max(finite, key=lambda point: (sign * point[1], -point[0]))
        found |= {"best": value, "best_step": step}
    return found
