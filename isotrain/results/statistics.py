"""Statistics over seeds: mean, spread, 95 % CI, and tests of paired differences.

Student's t holds its level from three seeds on if scores are roughly normal; bootstrapping so few
seeds covers far less. Sums are exactly rounded, so results do not depend on the order of seeds.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ncfdtr, ndtri, stdtr, stdtrit  # type: ignore[import-untyped]

from isotrain.arguments import checked

ROUNDING = 1e-6  # relative; scores are float32, so a smaller spread is their rounding
LEVEL = 0.05  # family-wise
FEWEST_SEEDS = 3  # of an interval or test; with two, t is 12.7
FEWEST_FLIPPED = 8  # pairs; with 5 no sign pattern reaches p < 0.05, with 6 only one
FLIPS = 4  # times the smallest p must fit in a level, else flips have less power than the t test
Z = NormalDist().inv_cdf(0.975)
MOST_FLIPPED = 40  # pairs; 2^20 sums of each half take 0.2 s


class Summary(NamedTuple):
    """Mean over n seeds; what is undefined for few seeds or equal scores is None."""

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    p: float | None  # two-sided, of the hypothesis that the mean is 0


class Comparison(NamedTuple):
    """Paired differences to a baseline; None if undefined (n < 3 or equal differences)."""

    difference: Summary  # with the p of the paired t test, which matches the interval
    p: float | None  # two-sided, of the hypothesis of no difference, by `method`
    method: str  # t | permutation; "" where p is None
    p_equivalent: float | None  # of the hypothesis of a difference beyond the margin


def summarize(values: Sequence[float]) -> Summary:
    """Mean, standard deviation (n − 1) and 95 % CI by Student's t of finite values.

    low, high = mean ∓ t·sd/√n, with t the .975 quantile of Student's t with n − 1 degrees of
    freedom. One seed has a mean alone, two have an sd and no interval. Values that agree up to the
    rounding of float32 have sd 0 and no interval: they do not estimate the spread.

    The CI of normal scores covers 95 % at any n. In simulations that of exponential
    scores (skewness 2) covered 88, 88 and 90 % at n = 3, 5 and 10; with normal scores of which a
    tenth collapses by 5 standard deviations, 94, 92 and 89 %.

    Raises:
        ValueError: no value, or one that is not finite.

    >>> s = summarize([0.70, 0.74, 0.72])
    >>> f"{s.mean:.2f} {s.sd:.2f} {s.low:.3f} {s.high:.3f}"
    '0.72 0.02 0.670 0.770'
    """
    return _summary(values, max(map(abs, values), default=0.0))


@checked
def compare_paired(
    values: Sequence[float] | NDArray[Any],
    baseline: Sequence[float] | NDArray[Any],
    margin: Annotated[float | None, Field(gt=0, lt=math.inf)] = None,
) -> Comparison:
    """Paired differences `values[i] − baseline[i]`: CI, tests of difference and equivalence.

    - `difference.p` = 2·P(T > |mean|·√n/sd), T of Student's t with n − 1 degrees of freedom, is
      below .05 exactly if the CI excludes 0.
    - `p` is the same number below 8 pairs (and above 40). From 8 to 40 it is the exact sign-flip p:
      the share of the 2^n sign patterns with at least the observed |sum|. It assumes only that the
      null distribution is symmetric. At 5 % it rejects 4.7 % of null cases at n = 8 and 9, 4.9 % at
      n = 10, where ties are rare.
    - `p_equivalent` is the larger p of two one-sided t tests, of mean ≤ −margin and of
      mean ≥ margin; it is below 0.05 if the 90 % interval lies within ∓margin. Choose the
      margin before seeing the runs.

    Equal differences have no p: the seeds changed nothing, so they count as one.

    Raises:
        ValueError: lists of different lengths; margin ≤ 0; otherwise as `summarize`.

    >>> c = compare_paired([0.70, 0.74, 0.72], [0.68, 0.69, 0.71], margin=0.1)
    >>> d = c.difference
    >>> f"{d.mean:.4f} {d.low:.4f} {d.high:.4f} {d.p:.3f} {c.p:.3f} {c.method}"
    '0.0267 -0.0250 0.0784 0.157 0.157 t'
    >>> f"{c.p_equivalent:.3f}"
    '0.013'
    """
    if len(values) != len(baseline):
        raise ValueError(
            f"a paired comparison needs equally many values, got {len(values)} and "
            f"{len(baseline)}; keep the seeds that both methods have"
        )
    scale = max((abs(value) for value in [*values, *baseline]), default=0.0)
    differences = [value - base for value, base in zip(values, baseline, strict=True)]
    summary = _summary(differences, scale)
    if summary.sd is None or summary.p is None:
        return Comparison(summary, None, "", None)
    p, method = summary.p, "t"
    if FEWEST_FLIPPED <= summary.n <= MOST_FLIPPED:
        p, method = _sign_flip_p(differences, summary.n * ROUNDING * scale), "permutation"
    p_equivalent = None
    if margin is not None:
        error = summary.sd / math.sqrt(summary.n)
        p_equivalent = float(stdtr(summary.n - 1, (abs(summary.mean) - margin) / error))
    return Comparison(summary, p, method, p_equivalent)


@checked
def seeds_needed(
    sd: Annotated[float, Field(gt=0, lt=math.inf)],
    difference: Annotated[float, Field(gt=0, lt=math.inf)] = 0.01,
    power: Annotated[float, Field(ge=0.8, lt=1)] = 0.8,
    n_comparisons: Annotated[int, Field(ge=1)] = 1,
) -> int:
    """Approximate number of seeds to detect a difference among m comparisons with a given power.

    Detection means p < 0.05/m, Holm's strictest step: the least n ≥ 3 with
    P(T² > t²) ≥ power, where t is the 1 − 0.025/m quantile of Student's t with n − 1 degrees of
    freedom and T² noncentral F with 1 and n − 1, its noncentrality n·(difference/sd)²; `sd` is
    that of the paired differences. From 8 to 40 seeds the sign-flip test is used; its power is
    approximated by that of the t test, at an n where a few sign patterns lie below 0.05/m. In
    simulations of 8 to 23 seeds and 1 to 30 comparisons, power 0.8 was 0.73 to 0.85 by flips.

    The sd of few seeds is itself uncertain: with 5 seeds the true one may be 0.6 to 2.9 times as
    large, and n grows as its square.

    Raises:
        ValueError: sd or difference not positive and finite; power outside [0.8, 1); m below 1.

    >>> seeds_needed(0.015), seeds_needed(0.015, difference=0.02), seeds_needed(0.002)
    (20, 7, 3)
    >>> seeds_needed(0.015, n_comparisons=3)
    27
    """
    level, effect = LEVEL / n_comparisons, difference / sd
    least = int(((float(-ndtri(level / 2)) + float(ndtri(power))) / effect) ** 2)
    n = max(FEWEST_SEEDS, least)
    while (
        1 - ncfdtr(1, n - 1, n * effect**2, stdtrit(n - 1, 1 - level / 2) ** 2) < power
        or FLIPS * smallest_p(n) > level
    ):
        n += 1
    return n


def smallest_p(n: int) -> float:
    """Smallest attainable p of n pairs: 2^(1 − n) for the sign-flip test, else 0.

    >>> smallest_p(7), smallest_p(8)
    (0.0, 0.0078125)
    """
    return 2.0 ** (1 - n) if FEWEST_FLIPPED <= n <= MOST_FLIPPED else 0.0


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm-corrected p values (step-down); None stays None and is not counted.

    The i-th smallest of m becomes the largest of min(1, (m − j + 1)·p_(j)) over j ≤ i. Rejecting
    all below a level controls the family-wise error rate at that level, for any dependence between
    the tests.

    Raises:
        ValueError: a p outside [0, 1].

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    if bad_p := [p for p in p_values if p is not None and not 0 <= p <= 1]:
        raise ValueError(f"a p value lies between 0 and 1, got {bad_p}; give None where undefined")
    order = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[i] = largest
    return adjusted


def _sign_flip_p(differences: Sequence[float], tolerance: float) -> float:
    """Share of the 2^n sign patterns with a sum at least as far from 0; ties within tolerance.

    scipy's `permutation_test` counts ties up to 1e-14 only; accuracies are float32.
    """
    threshold = abs(math.fsum(differences)) - tolerance
    if threshold <= 0:
        return 1.0
    sizes = sorted(map(abs, differences))
    half = len(sizes) // 2
    first, second = _signed_sums(sizes[:half]), np.sort(_signed_sums(sizes[half:]))
    n_above = len(second) * len(first) - int(np.searchsorted(second, threshold - first).sum())
    return float(2 * n_above / 2 ** len(sizes))  # by symmetry, as many lie below −threshold


def _signed_sums(sizes: Sequence[float]) -> np.ndarray:
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums - size, sums + size])
    return sums


def _summary(values: Sequence[float], scale: float) -> Summary:
    n = len(values)
    if n == 0 or not all(map(math.isfinite, values)):
        raise ValueError(f"a summary needs at least one value, all finite, got {list(values)}")
    mean = fmean(values)
    if n == 1:
        return Summary(n, mean, None, None, None, None)
    sd = stdev(values)
    if sd <= ROUNDING * scale:
        return Summary(n, mean, 0.0, None, None, None)
    if n < FEWEST_SEEDS:
        return Summary(n, mean, sd, None, None, None)
    error = sd / math.sqrt(n)
    half_width = float(stdtrit(n - 1, 0.975)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Summary(n, mean, sd, mean - half_width, mean + half_width, p)


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of an accuracy p over N examples, within [0, 1].

    (p + z²/2N ± z·√(p(1 − p)/N + z²/4N²)) / (1 + z²/N), z = 1.96.

    >>> [round(end, 4) for end in wilson(0.5, 96)], [round(end, 4) for end in wilson(0.0, 96)]
    ([0.4019, 0.5981], [0.0, 0.0385])
    """
    centre = share + Z**2 / (2 * n)
    half_width = Z * math.sqrt(share * (1 - share) / n + Z**2 / (2 * n) ** 2)
    low, high = ((centre + sign * half_width) / (1 + Z**2 / n) for sign in (-1, 1))
    return round(low, 12), round(high, 12)  # 0 and 1 without rounding error


def accuracy_interval(key: str, value: float, n: int) -> tuple[float, float] | None:
    """The 95 % CI of an accuracy over its N examples; None for other scores."""
    return wilson(value, n) if key.endswith("/accuracy") and n and 0 <= value <= 1 else None
