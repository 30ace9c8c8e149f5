"""Rank correlation of few or many pairs, with an interval. N pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isotrain.reporting.row_bootstrap import spearman as spearman_of

Z = 1.959963984540054  # 97.5 % quantile of the normal distribution
ROUNDING = 1e-12  # nearer to ±1 is ±1


class Correlation(NamedTuple):
    """A correlation and its 95 % interval; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


def spearman(predicted_N: ArrayLike, label_N: ArrayLike) -> Correlation:
    """Spearman's ρ of predictions and labels, in [−1, 1], with a 95 % interval.

    Pearson's correlation of the ranks, ties at their mean rank. The interval is
    tanh(artanh ρ ± 1.96·√((1 + ρ²/2)/(N − 3))). Without spread on one side, or with N < 4, there
    is no value, or no interval.

    Bonett and Wright 2000 (interval).

    >>> found = spearman([1.0, 2.0, 3.0, 5.0, 4.0, 6.0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    >>> [round(v, 2) for v in found]
    [0.94, 0.38, 1.0]
    """
    label = np.asarray(label_N, np.float64)
    predicted = np.asarray(predicted_N, np.float64)
    if len(label) < 2:
        return Correlation(None, None, None)
    value = float(spearman_of(label, predicted[None], np.ones((1, len(label))))[0, 0])
    if not math.isfinite(value):
        return Correlation(None, None, None)
    if len(label) < 4 or abs(value) > 1.0 - ROUNDING:
        return Correlation(value, None, None)
    half = Z * math.sqrt((1 + value**2 / 2) / (len(label) - 3))
    middle = math.atanh(value)
    return Correlation(value, math.tanh(middle - half), math.tanh(middle + half))
