"""Examples of a task in one form, their frozen features, and the scores of heads on them.

N examples, J texts of an example, V texts, D dimensions, F features, S seeds.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from isotrain.analysis.data_sets import TEXTS
from isotrain.analysis.encode import Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.probe import best_penalty, features
from isotrain.analysis.types import Record, Subject
from isotrain.encoders.static import TableEncoder
from isotrain.geometry.groups import hashed_order
from isotrain.reporting.row_bootstrap import accuracy, row_interval
from isotrain.tasks.data.sources import HIDDEN, Source, load_split

WORD = re.compile(r"\w+")
HELD_EVERY = 5  # of a class: one example in five chooses the penalty
PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)  # λ of λ/2·‖W‖², on standardised features


class Examples(NamedTuple):
    """Training examples, followed by those that heads are scored on."""

    texts: list[str]
    text_NJ: np.ndarray  # numbers of the one or two texts of an example
    label_N: np.ndarray
    words_N: list[list[str]]  # in lower case
    classes: tuple[str, ...]
    n_train: int


def read_examples(
    source: Source, task: str, max_train: int, max_evaluated: int, seed: int
) -> Examples:
    """Examples of train and dev with gold, at most so many, by `nested_order`."""
    data_set, fields = TEXTS[task]
    kept = []
    for split, most in (("train", max_train), ("dev", max_evaluated)):
        rows = [r for r in load_split(source, data_set, split) if r["label"] != HIDDEN]
        order = nested_order(np.array([r["label"] for r in rows]), seed)
        kept.append([rows[i] for i in order[:most]])
    every = [row for rows in kept for row in rows]
    number_of: dict[str, int] = {}
    text_NJ = [[number_of.setdefault(row[f], len(number_of)) for f in fields] for row in every]
    return Examples(
        texts=list(number_of),
        text_NJ=np.array(text_NJ),
        label_N=np.array([row["label"] for row in every]),
        words_N=[WORD.findall(" ".join(row[f] for f in fields).lower()) for row in every],
        classes=data_set.classes,
        n_train=len(kept[0]),
    )


def unseen_shares(
    examples: Examples, order_N: Sequence[int] | np.ndarray, sizes: Sequence[int]
) -> np.ndarray:
    """Share `[sizes, scored]` of words of each scored example that are unseen in training.

    Training has the first n examples of an order, for each n of `sizes`.
    """
    place_of: dict[str, int] = {}  # of the first example that has a word
    for place, i in enumerate(order_N):
        for word in examples.words_N[i]:
            place_of.setdefault(word, place)
    scored = examples.words_N[examples.n_train :]
    found = np.zeros((len(sizes), len(scored)))
    for column, words in enumerate(scored):
        if words:
            places = np.array([place_of.get(word, len(order_N)) for word in words])
            found[:, column] = [(places >= n).mean() for n in sizes]
    return found


def nested_order(class_N: np.ndarray, seed: int) -> np.ndarray:
    """The positions 0..N−1 in an order whose first n are a draw of n in the shares of the classes.

    So draws are nested. The j-th of the n_c examples of a class, in random order, is given the
    place (j + ½)/n_c, and all are sorted by place. Of the first n about n·n_c/N are of class c: at
    most (1 + C·n_c/N)/2 more or fewer.

    >>> classes = np.array([0, 0, 0, 0, 1, 1])
    >>> classes[nested_order(classes, seed=0)].tolist()
    [0, 1, 0, 0, 1, 0]
    """
    drawn_N = hashed_order(len(class_N), seed).numpy()
    place_N = np.empty(len(class_N))
    for one in np.unique(class_N):
        own_n = drawn_N[class_N[drawn_N] == one]
        place_N[own_n] = (np.arange(len(own_n)) + 0.5) / len(own_n)
    return np.lexsort((class_N, place_N))


def held_out(class_n: np.ndarray, group_n: np.ndarray) -> np.ndarray:
    """Mask of examples held out to select the penalty: the 3rd, 8th, 13th ... of each class.

    Examples of a group, of the class of its first, stay together, unless all are one group. At
    least one is held out: the last, where no class has three.

    >>> held_out(np.array([0, 1, 0, 0, 1, 0]), np.arange(6)).tolist()
    [False, False, False, True, False, False]
    >>> held_out(np.array([0, 1, 0, 0, 1, 0]), np.array([0, 1, 2, 3, 4, 3])).tolist()
    [False, False, False, True, False, True]
    """
    first_g = np.sort(np.unique(group_n, return_index=True)[1])
    if len(first_g) == 1:
        group_n = first_g = np.arange(len(class_n))
    held_g = np.zeros(len(first_g), dtype=bool)
    for one in np.unique(class_n[first_g]):
        (own,) = np.nonzero(class_n[first_g] == one)
        held_g[own[HELD_EVERY // 2 :: HELD_EVERY]] = True
    if not held_g.any():
        held_g[-1] = True
    return np.isin(group_n, group_n[first_g[held_g]])


def sizes(n: int, smallest: int, factor: float) -> list[int]:
    """Sizes from the smallest on, each `factor` times the last, and n, which has none too near.

    That is, none above n/√factor.

    >>> sizes(100, 16, 2), sizes(80, 16, 2), sizes(10, 16, 2)
    ([16, 32, 64, 100], [16, 32, 80], [10])
    """
    found, size = [], float(smallest)
    while round(size) <= n / factor**0.5:
        found.append(round(size))
        size *= factor
    return [*dict.fromkeys(found), n]


def encoded(subject: Subject, examples: Examples) -> tuple[Tensor, Record]:
    """Features `[N, F]` of all examples at the last layer, and facts about encoding.

    Means over tokens; of word vectors, over known tokens. `n_absent`: texts without one, which are
    0; `unknown_share`: of the tokens that are not special; `n_cut`: texts beyond `max_length`.
    """
    encoder = subject.encoder
    tokens = tokenise(encoder.tokenizer, examples.texts, subject.max_length)
    spans, place_V = ordinary_spans(tokens)
    n_absent = int((place_V < 0).sum())
    if isinstance(encoder, TableEncoder):
        mean_MD, n_unknown = _of_table(encoder, tokens, spans)
        n_absent += n_unknown
    else:
        mean_MD = torch.from_numpy(encode_rows(subject, tokens, spans, [encoder.n_blocks])[0])
    vectors = torch.cat([mean_MD, torch.zeros(1, encoder.width)])  # the last one is place −1
    ids, marks = (np.concatenate([*map(np.asarray, own)]) for own in (tokens.ids, tokens.special))
    ordinary, id_of_unknown = ids[marks == 0], encoder.tokenizer.unk_token_id
    n_unknown = 0 if id_of_unknown is None else int((ordinary == id_of_unknown).sum())
    return features(vectors, torch.from_numpy(place_V[examples.text_NJ])), {
        "unknown_share": n_unknown / max(1, len(ordinary)),
        "n_absent": n_absent,
        "n_cut": tokens.n_cut,
    }


def ordinary_spans(tokens: Tokens) -> tuple[Spans, np.ndarray]:
    """The tokens of each text that are not special; the place `[V]` of its span, or −1."""
    found: list[tuple[int, int, int]] = []
    place_V = np.full(len(tokens.ids), -1)
    for text, marks in enumerate(tokens.special):
        if own := [t for t, special in enumerate(marks) if not special]:
            place_V[text] = len(found)
            found.append((text, own[0], own[-1] + 1))
    return Spans(*np.array(found, dtype=np.int64).reshape(-1, 3).T), place_V


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


def measured(
    features_of: Callable[[int], Tensor], examples: Examples, sizes: list[int], seeds: list[int]
) -> Iterator[Record]:
    """A record per seed and size, then the means over seeds with their intervals.

    `features_of` gives the features of a seed's number.
    """
    label_N, n_train = examples.label_N, examples.n_train
    predicted: dict[int, list[np.ndarray]] = {size: [] for size in sizes}
    for number, seed in enumerate(seeds):
        x_NF = features_of(number).numpy()
        order = nested_order(label_N[:n_train], seed)
        unseen = unseen_shares(examples, order, sizes)
        for size, unseen_n in zip(sizes, unseen, strict=True):
            chosen = order[:size]
            held_n = held_out(label_N[chosen], examples.text_NJ[chosen, 0])
            fit, held = chosen[~held_n], chosen[held_n]
            parts = x_NF[fit], label_N[fit], x_NF[held], label_N[held]
            head = best_penalty(*parts, PENALTIES, len(examples.classes))
            class_n = head.probe.predict(x_NF[n_train:])
            predicted[size].append(class_n)
            scores = by_unseen(class_n == label_N[n_train:], unseen_n)
            yield {"kind": "score", "size": size, "seed": number, **scores, "penalty": head.penalty}
    for size, own in predicted.items():
        yield {"kind": "mean", "size": size, **mean_accuracy(np.stack(own), label_N[n_train:])}


def by_unseen(is_right_N: np.ndarray, unseen_N: np.ndarray) -> Record:
    """Accuracy on all, and on examples up to and above the median share of unseen words."""
    is_many_N = unseen_N > np.median(unseen_N)
    return {
        "score": float(is_right_N.mean()),
        "n_scored": len(is_right_N),
        "unseen_share": float(unseen_N.mean()),
        "score_few_unseen": float(is_right_N[~is_many_N].mean()),
        "n_few_unseen": int((~is_many_N).sum()),
        "score_many_unseen": float(is_right_N[is_many_N].mean()) if is_many_N.any() else None,
        "n_many_unseen": int(is_many_N.sum()),
    }


def mean_accuracy(class_SN: np.ndarray, label_N: np.ndarray) -> Record:
    """Mean accuracy, standard deviation over seeds and 95 % interval, within 0 … 1.

    The interval is that of `row_interval`, of the difference to predictions that are never right.
    None where nothing varies.

    >>> found = mean_accuracy(np.array([[1, 1, 0, 1]]), np.ones(4))
    >>> found["mean"], found["high"]
    (0.75, 1.0)
    """
    score_S = [float(one) for one in (class_SN == label_N).mean(axis=1)]
    low = high = None
    if len(label_N) > 1:
        never_SN = np.full(class_SN.shape, HIDDEN)
        _, low, high, *_ = row_interval(class_SN, never_SN, label_N, accuracy)
    return {
        "n_seeds": len(score_S),
        "mean": fmean(score_S),
        "sd": stdev(score_S) if len(score_S) > 1 else None,
        "low": None if low is None else max(low, 0.0),
        "high": None if high is None else min(high, 1.0),
    }
