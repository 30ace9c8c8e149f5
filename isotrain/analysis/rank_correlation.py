"""Rank correlation with its confidence interval. N pairs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isotrain.analysis.tables import Z
from isotrain.reporting.row_bootstrap import spearman as spearman_of

ROUNDING = 1e-12  # nearer to ±1 is ±1


class Correlation(NamedTuple):
    """A correlation and its 95 % CI; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


def spearman(predicted_N: ArrayLike, label_N: ArrayLike) -> Correlation:
    """Spearman's ρ of predictions and labels, in [−1, 1], with a 95 % CI.

    Pearson's correlation of the ranks, ties at their mean rank. The CI is
    tanh(artanh ρ ± 1.96·√((1 + ρ²/2)/(N − 3))). Without spread on one side, or with N < 4, there
    is no value, or no CI. Bonett and Wright 2000 (CI).

    >>> found = spearman([1.0, 2.0, 3.0, 5.0, 4.0, 6.0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    >>> [round(v, 2) for v in found]
    [0.94, 0.38, 1.0]
    """
    label, predicted = (np.asarray(given, np.float64) for given in (label_N, predicted_N))
    n, value = len(label), math.nan
    if n > 1:
        value = float(spearman_of(label, predicted[None], np.ones((1, n)))[0, 0])
    if not math.isfinite(value):
        return Correlation(None, None, None)
    if n < 4 or abs(value) > 1.0 - ROUNDING:
        return Correlation(value, None, None)
    half = Z * math.sqrt((1 + value**2 / 2) / (n - 3))
    middle = math.atanh(value)
    return Correlation(value, math.tanh(middle - half), math.tanh(middle + half))
