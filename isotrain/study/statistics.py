"""Scores over seeds: mean, spread, t interval, and paired differences.

A t interval holds its level from three seeds on where scores are about normal; resampling the few
seeds instead covers far less. Sums are exactly rounded, so the order of seeds changes no digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

ROUNDING = 1e-6  # relative; scores are float32, so a smaller spread is their rounding


class Summary(NamedTuple):
    """A mean over n seeds; what n = 1 or equal values leave undefined is None."""

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    p: float | None  # two-sided, of the hypothesis that the mean is 0


def summarize(values: Sequence[float], confidence: float = 0.95) -> Summary:
    """Mean, standard deviation (n − 1) and two-sided t interval of finite values.

    low, high = mean ∓ t·sd/√n, with t the (1 + confidence)/2 quantile of Student's t with n − 1
    degrees of freedom. With n = 1 only the mean is defined. Values that agree up to the rounding
    of float32 have sd 0 and no interval: they say nothing about the spread.

    Raises:
        ValueError: no value, one that is not finite, or a confidence outside (0, 1).

    >>> s = summarize([0.70, 0.74, 0.72])
    >>> f"{s.mean:.2f} {s.sd:.2f} {s.low:.3f} {s.high:.3f}"
    '0.72 0.02 0.670 0.770'
    """
    return _summary(values, max(map(abs, values), default=0.0), confidence)


def compare_paired(
    values: Sequence[float], baseline: Sequence[float], confidence: float = 0.95
) -> Summary:
    """Mean, spread and t interval of `values[i] − baseline[i]`, and p of the paired t test.

    p = 2·P(T > |mean|·√n/sd) for Student's t with n − 1 degrees of freedom, two-sided. It goes
    with the interval: p < 1 − confidence exactly where the interval leaves out 0.

    Raises:
        ValueError: lists of different lengths; otherwise as `summarize`.

    >>> d = compare_paired([0.70, 0.74, 0.72], [0.68, 0.69, 0.71])
    >>> f"{d.mean:.4f} {d.low:.4f} {d.high:.4f} {d.p:.3f}"
    '0.0267 -0.0250 0.0784 0.157'
    """
    if len(values) != len(baseline):
        raise ValueError(
            f"a paired comparison needs equally many values, got {len(values)} and "
            f"{len(baseline)}; keep the seeds that both arms have"
        )
    scale = max((abs(value) for value in [*values, *baseline]), default=0.0)
    differences = [value - other for value, other in zip(values, baseline, strict=True)]
    return _summary(differences, scale, confidence)


def _summary(values: Sequence[float], scale: float, confidence: float) -> Summary:
    n = len(values)
    if n == 0 or not all(map(math.isfinite, values)):
        raise ValueError(f"a summary needs at least one value, all finite, got {list(values)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}; usual is 0.95")
    mean = fmean(values)
    if n == 1:
        return Summary(n, mean, None, None, None, None)
    sd = stdev(values)
    if sd <= ROUNDING * scale:
        return Summary(n, mean, 0.0, None, None, None)
    error = sd / math.sqrt(n)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Summary(n, mean, sd, mean - half, mean + half, p)
