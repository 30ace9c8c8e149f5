"""Frozen features of a task, and the scores of heads on them: every seed, every training size.

E examples, N rows, J vectors of a row, V vectors, D dimensions, F features, S seeds, R resamples,
P vectors of predictions.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from isotrain.analysis.data_scale.examples import (
    NOWHERE,
    Diagnostic,
    Examples,
    entities,
    held_out,
    nested_order,
    unseen_shares,
)
from isotrain.analysis.encode import Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.probe import best_penalty
from isotrain.analysis.types import Record, Subject
from isotrain.encoders.static import TableEncoder
from isotrain.model.heads import pair_features
from isotrain.reporting.row_bootstrap import Floats, Score, row_interval

PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)  # λ of λ/2·‖W‖², on standardised features


class Features:
    """Features: one vector, several concatenated, or (u, v, |u − v|, u·v) of a pair."""

    def __init__(self, vector_VD: Tensor, vector_NJ: Tensor, is_pair: bool) -> None:
        self._vector_VD, self._vector_NJ, self._is_pair = vector_VD, vector_NJ, is_pair
        self.width = vector_VD.shape[1] * (4 if is_pair else vector_NJ.shape[1])

    def __call__(self, row_B: Tensor) -> Tensor:
        """`[B, F]`, in float32."""
        vector_BJ = self._vector_NJ[row_B]
        x_BJD = self._vector_VD[vector_BJ.clamp_min(0)]
        x_BJD[vector_BJ == NOWHERE] = 0.0
        if self._is_pair:
            return pair_features(*x_BJD.unbind(dim=1))
        return x_BJD.flatten(1)


class Encoded(NamedTuple):
    """Features of examples from one encoder, and facts about encoding."""

    features: Features
    unknown_share: float  # of the tokens that are not special
    n_cut: int  # texts longer than `max_length`
    n_absent: int  # vectors without a token, of word vectors without a known one: 0


def encoded(subject: Subject, name: str, examples: Examples, layer: int) -> Encoded:
    """Features of all examples at a layer: means over tokens; for word vectors, known tokens."""
    encoder = subject.encoder
    tokens = tokenise(encoder.tokenizer, examples.texts, subject.max_length)
    spans, place_V = spans_of(tokens, examples)
    n_absent = int((place_V == NOWHERE).sum())
    if isinstance(encoder, TableEncoder):
        vector_VD, n_unknown = _of_table(encoder, tokens, spans)
        n_absent += n_unknown
    else:
        vector_VD = torch.from_numpy(encode_rows(subject, name, tokens, spans, [layer])[0])
    place_NJ = np.where(examples.vector_NJ == NOWHERE, NOWHERE, place_V[examples.vector_NJ])
    ids, marks = (np.concatenate([*map(np.asarray, own)]) for own in (tokens.ids, tokens.special))
    ordinary, id_of_unknown = ids[marks == 0], encoder.tokenizer.unk_token_id
    unknown = 0.0 if id_of_unknown is None else (ordinary == id_of_unknown).sum().item()
    unknown /= max(1, len(ordinary))
    features = Features(vector_VD, torch.from_numpy(place_NJ), examples.is_pair)
    return Encoded(features, unknown, tokens.n_cut, n_absent)


def spans_of(tokens: Tokens, examples: Examples) -> tuple[Spans, np.ndarray]:
    """The tokens that reach into each vector's characters; the place `[V]` of its span, or −1."""
    own_T = [[t for t, special in enumerate(marks) if not special] for marks in tokens.special]
    both = list(zip(tokens.offsets, own_T, strict=True))
    starts = [[offsets[t][0] for t in own] for offsets, own in both]
    stops = [[offsets[t][1] for t in own] for offsets, own in both]
    found: list[tuple[int, int, int]] = []
    place_V = np.full(len(examples.text_V), NOWHERE)
    characters = zip(examples.text_V, examples.start_V, examples.stop_V, strict=True)
    for number, (text, start, stop) in enumerate(characters):
        first = bisect_right(stops[text], start)
        last = bisect_left(starts[text], stop)
        if first < last:
            place_V[number] = len(found)
            found.append((text, own_T[text][first], own_T[text][last - 1] + 1))
    at = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Spans(at[:, 0], at[:, 1], at[:, 2]), place_V


def _of_table(encoder: TableEncoder, tokens: Tokens, spans: Spans) -> tuple[Tensor, int]:
    """The mean vector of the known tokens of each span, and how many spans have none (0)."""
    unknown = encoder.tokenizer.unk_token_id
    at = zip(spans.sentence_N, spans.start_N, spans.stop_N, strict=True)
    ids = [tokens.ids[i][start:stop] for i, start, stop in at]
    first_N = torch.tensor([0, *map(len, ids)])[:-1].cumsum(dim=0)
    table_VD = encoder.embeddings.get_parameter("weight").cpu()
    flat = torch.tensor([token for own in ids for token in own], dtype=torch.long)
    mean_ND = embedding_bag(flat, table_VD, first_N, mode="mean", padding_idx=unknown)
    return mean_ND, sum(set(own) == {unknown} for own in ids)


class Tally(NamedTuple):
    """Contribution `[E]` of each scored example to a score Σ gain/Σ weight: accuracy, or F1."""

    gain_E: np.ndarray
    weight_E: np.ndarray

    def score(self, kept_E: np.ndarray) -> float | None:
        """The score of some examples; None without any."""
        if not kept_E.any():
            return None
        return float(self.gain_E[kept_E].sum() / max(1.0, self.weight_E[kept_E].sum()))


def measured(
    features_of: Callable[[int], Features],
    examples: Examples,
    sizes: list[int],
    seeds: list[int],
    diagnostic: Diagnostic | None,
    tell: Callable[[str], None],
) -> Iterator[Record]:
    """A record per seed and size, and per category for the heads of the largest size.

    Then the means over seeds with their intervals. `features_of` gives the features of a seed's
    number.
    """
    label_N = examples.label_N
    first = int(np.searchsorted(examples.example_N, examples.n_train))  # first row after training
    tallies: dict[int, list[Tally]] = {size: [] for size in sizes}
    of_more: list[np.ndarray] = []
    for number, seed in enumerate(seeds):
        features = features_of(number)
        order = nested_order(examples.stratum_E[: examples.n_train], seed)
        unseen = unseen_shares(examples, order, sizes)
        for size, unseen_E in zip(sizes, unseen, strict=True):
            tell(f"seed {number}, {size:,} training examples")
            chosen_E = order[:size]
            held_n = held_out(examples.stratum_E[chosen_E], examples.group_E[chosen_E])
            fit, held = (examples.rows_of(chosen_E[part]) for part in (~held_n, held_n))
            x_nF, held_mF = (features(torch.from_numpy(rows)).numpy() for rows in (fit, held))
            parts = x_nF, label_N[fit], held_mF, label_N[held]
            head = best_penalty(*parts, PENALTIES, len(examples.classes))
            class_n = head.probe.predict(features(torch.arange(first, len(label_N))).numpy())
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
        yield from _categories(diagnostic, np.stack(of_more), sizes[-1])


def tally(examples: Examples, class_n: np.ndarray) -> Tally:
    """Contribution of scored examples to the score; classes are predicted for rows after train."""
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
    """The score, and those of the examples up to and above the median share of unseen words."""
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


def matthews(label_N: Floats, class_PN: Floats, count_RN: Floats) -> Floats:
    """Correlations `[R, P]` of predicted and true classes, in [−1, 1]: 0 is chance.

    R_K = (c·N − Σ_k p_k·t_k)/√((N² − Σ p_k²)(N² − Σ t_k²)), with c right of N rows, and of class k
    p_k predicted and t_k true, where row n counts count_RN[r, n] times; 0 where either side has
    one class only. Gorodkin 2004, equation 8; the score of the diagnostic set (R₃).

    >>> matthews(np.array([0, 1, 2, 2]), np.array([[0, 1, 2, 2]]), np.ones((1, 4))).tolist()
    [[1.0]]
    """
    n_R1 = count_RN.sum(axis=1, keepdims=True)
    covariance_RP = n_R1 * (count_RN @ (class_PN == label_N).T)
    true_R1, predicted_RP = n_R1**2, n_R1**2 + np.zeros_like(covariance_RP)
    for k in np.unique([*label_N, *class_PN.flat]):
        t_R1, p_RP = count_RN @ (label_N == k)[:, None], count_RN @ (class_PN == k).T
        covariance_RP -= t_R1 * p_RP
        true_R1 = true_R1 - t_R1**2
        predicted_RP -= p_RP**2
    spread_RP = np.sqrt(true_R1 * predicted_RP)
    found_RP: Floats = np.zeros_like(spread_RP)
    np.divide(covariance_RP, spread_RP, found_RP, where=spread_RP > 0)
    return found_RP


def _categories(diagnostic: Diagnostic, class_SN: np.ndarray, size: int) -> Iterator[Record]:
    """Correlation of each category: per seed, then the mean."""
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

    The interval is that of `row_interval`, of the difference to predictions `nothing`, whose score
    is 0 on any examples. None where nothing varies.
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
