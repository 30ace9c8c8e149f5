"""Scores of the heads of one task on one kind of features: every seed, every training size.

E examples, N rows, S seeds, R resamples, P vectors of predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch

from isotrain.analysis.data_scale.examples import Examples, held_out, nested_order, unseen_shares
from isotrain.analysis.data_scale.features import Features
from isotrain.analysis.data_scale.given import Diagnostic, entities, matthews
from isotrain.analysis.probe import best_penalty
from isotrain.analysis.types import Record
from isotrain.reporting.row_bootstrap import Floats, Score, row_interval

PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)  # λ of λ/2·‖W‖², on standardised features


class Plan(NamedTuple):
    """Which heads are trained."""

    sizes: list[int]  # of training sets, rising
    seeds: list[int]  # one draw of training examples each


class Tally(NamedTuple):
    """What each scored example adds to a score Σ gain/Σ weight, `[E]` or `[S, E]`.

    Accuracy: 1 or 0 of 1. F1 of entities: twice the right ones, of those in gold and predicted.
    """

    gain_E: np.ndarray
    weight_E: np.ndarray

    def score(self, kept_E: np.ndarray) -> float | None:
        """The score of some examples; None where there are none."""
        if not kept_E.any():
            return None
        return float(self.gain_E[kept_E].sum() / max(1.0, self.weight_E[kept_E].sum()))


def measured(
    features_of: Callable[[int], Features],
    examples: Examples,
    plan: Plan,
    diagnostic: Diagnostic | None,
    tell: Callable[[str], None],
) -> Iterator[Record]:
    """A record for each seed and size; and for each category, by the heads of the largest size.

    Behind them the means over seeds with their intervals, for each size and each category.
    `features_of` gives the features of the seed with a number.
    """
    label_N = examples.label_N
    first = int(np.searchsorted(examples.example_N, examples.n_train))  # row behind training
    tallies: dict[int, list[Tally]] = {size: [] for size in plan.sizes}
    of_more: list[np.ndarray] = []
    for number, seed in enumerate(plan.seeds):
        features = features_of(number)
        order = nested_order(examples.stratum_E[: examples.n_train], seed)
        unseen = unseen_shares(examples, order, plan.sizes)
        for size, unseen_E in zip(plan.sizes, unseen, strict=True):
            tell(f"seed {number}, {size:,} training examples")
            chosen_E = order[:size]
            held_n = held_out(examples.stratum_E[chosen_E], examples.group_E[chosen_E])
            fit, held = (examples.rows_of(chosen_E[part]) for part in (~held_n, held_n))
            x_nF, held_mF = (features(torch.from_numpy(rows)).numpy() for rows in (fit, held))
            parts = x_nF, label_N[fit], held_mF, label_N[held]
            head = best_penalty(*parts, PENALTIES, len(examples.classes))
            class_n = head.probe.predict(features(torch.arange(first, len(features))).numpy())
            tallies[size].append(tally(examples, class_n))
            scores = by_unseen(tallies[size][-1], unseen_E)
            facts: Record = {"kind": "score", "size": size, "seed": number}
            yield {**facts, **scores, "penalty": head.penalty}
        if diagnostic is not None:
            of_more.append(class_n[examples.n_scored :])
    for size, own in tallies.items():
        gain_SE, weight_SE = (np.stack(one) for one in zip(*own, strict=True))
        yield {"kind": "mean", "size": size, **mean_ratio(gain_SE, weight_SE)}
    if diagnostic is not None:
        yield from _categories(diagnostic, np.stack(of_more), plan.sizes[-1])


def tally(examples: Examples, class_n: np.ndarray) -> Tally:
    """What the scored examples add to the score of classes, predicted for all rows behind train."""
    first = np.searchsorted(examples.example_N, examples.n_train)
    if examples.gold_E is None:
        row_n = examples.rows_of(examples.scored_E)
        right_E = (class_n[row_n - first] == examples.label_N[row_n]).astype(float)
        return Tally(right_E, np.ones_like(right_E))
    found = []
    for e in examples.scored_E:
        rows = examples.rows_of(np.array([e])) - first
        gold = entities(examples.gold_E[e])
        own = entities([examples.classes[c] for c in class_n[rows]])
        found.append((2.0 * len(gold & own), float(len(gold) + len(own))))
    return Tally(*np.array(found).T)


def by_unseen(own: Tally, unseen_E: np.ndarray) -> Record:
    """The score; and those of the halves with fewer and with more new words.

    A scored example is of the second half where its share of unseen words is above the median's.
    """
    many_E = unseen_E > np.median(unseen_E)
    return {
        "score": own.score(np.ones_like(many_E)),
        "n_scored": len(many_E),
        "unseen_share": float(unseen_E.mean()),
        "score_few_unseen": own.score(~many_E),
        "n_few_unseen": int((~many_E).sum()),
        "score_many_unseen": own.score(many_E),
        "n_many_unseen": int(many_E.sum()),
    }


def majority(examples: Examples) -> float | None:
    """The share of the largest class among the scored examples; None for tags."""
    if examples.gold_E is not None:
        return None
    counts = np.bincount(examples.label_N[examples.rows_of(examples.scored_E)])
    return float(counts.max() / counts.sum())


def _categories(diagnostic: Diagnostic, class_SN: np.ndarray, size: int) -> Iterator[Record]:
    """The correlation of each category: of every seed, then its mean."""
    gold_N = np.array([row["label"] for row in diagnostic.rows], dtype=float)
    means: list[Record] = []
    for category, mask_N in diagnostic.category.items():
        facts: Record = {"size": size, "category": category, "n": int(mask_N.sum())}
        gold, own = gold_N[mask_N], class_SN[:, mask_N].astype(float)
        every = np.ones((1, len(gold)))
        scores = matthews(gold, own, every)[0].tolist() if len(gold) else [None] * len(own)
        for number, score in enumerate(scores):
            yield {"kind": "diagnostic", **facts, "seed": number, "correlation": score}
        if len(gold):
            nothing = np.zeros_like(own)  # one class, whose correlation is 0
            mean = mean_score(own, nothing, gold, matthews, lowest=-1.0)
            means.append({"kind": "category", **facts, **mean})
    yield from means


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
