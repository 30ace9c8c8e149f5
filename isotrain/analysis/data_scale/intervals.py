"""Mean scores of heads, with intervals for other seeds and for other examples.

S seeds, N examples, R resamples, P vectors of predictions.
"""

from __future__ import annotations

from statistics import fmean, stdev

import numpy as np

from isotrain.analysis.types import Record
from isotrain.reporting.row_bootstrap import Floats, Score, row_interval


def mean_score(
    own_SN: Floats, nothing_SN: Floats, label_N: Floats, score: Score, lowest: float = 0.0
) -> Record:
    """Mean, standard deviation over seeds and 95 % interval of a score, clipped to `lowest` … 1.

    The interval is that of `row_interval`, for other seeds and other examples together, of the
    difference to predictions `nothing`, whose score is 0 on any rows. With one seed it is for
    other examples; it is None where nothing varies, and for a single example.
    """
    n_seeds, n = own_SN.shape
    score_S = score(label_N, own_SN, np.ones((1, n)))[0].tolist()
    low = high = None
    if n > 1:
        _, low, high, *_ = row_interval(own_SN, nothing_SN, label_N, score)
    return {
        "n_seeds": n_seeds,
        "mean": fmean(score_S),
        "sd": stdev(score_S) if n_seeds > 1 else None,
        "low": None if low is None else max(low, lowest),
        "high": None if high is None else min(high, 1.0),
    }


def mean_ratio(gain_SN: Floats, weight_SN: Floats) -> Record:
    """`mean_score` of scores Σ gain/Σ weight, as accuracy and F1 are.

    >>> right = np.array([[1.0, 1.0, 0.0, 1.0]])
    >>> found = mean_ratio(right, np.ones_like(right))
    >>> found["mean"], found["high"]
    (0.75, 1.0)
    """
    nothing = np.zeros_like(gain_SN[:1])
    gain_HN = np.concatenate([gain_SN, nothing])
    weight_HN = np.concatenate([weight_SN, nothing])

    def ratio(label_N: Floats, head_PN: Floats, count_RN: Floats) -> Floats:
        head_P = head_PN[:, 0].astype(int)  # what is predicted is known by the head's number
        gain_RP = count_RN @ gain_HN[head_P].T
        found: Floats = gain_RP / np.maximum(count_RN @ weight_HN[head_P].T, 1.0)
        return found

    number_SN = np.ones_like(gain_SN) * np.arange(len(gain_SN))[:, None]
    last_SN = np.full_like(gain_SN, len(gain_SN))
    return mean_score(number_SN, last_SN, np.zeros(gain_SN.shape[1]), ratio)
