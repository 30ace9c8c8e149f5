"""Tasks with labels as token rows: what a linear probe of a frozen layer is given.

N examples, P = 1 or 2 rows of an example, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.data_sets import TEXTS
from isotrain.analysis.encode import Spans, Tokens, tokenise, whole_sentences
from isotrain.analysis.selection import drawn, find_targets, tokenise_pairs, wic_pairs
from isotrain.analysis.types import Subject
from isotrain.model.heads import pair_features
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import HIDDEN, SPLITS, Source, load_split
from isotrain.types import Row

Pooling = Literal["mean", "cls"]


TASKS = {name: TEXTS[name] for name in ("rte", "wic", "stsb", "snli", "sst2")}


class Budget(NamedTuple):
    """Examples at most, drawn by a hash of their position and the seed; None = all."""

    train: int | None
    evaluated: int | None  # of dev, and of test
    seed: int


class Examples(NamedTuple):
    """Token rows of all splits, and which of them belong to each example."""

    tokens: Tokens
    spans: Spans
    place: Mapping[str, Tensor]  # by split, [N, P] numbers of rows; no split without gold
    label: Mapping[str, Tensor]  # by split, [N] class numbers, or scores
    n_left_out: int  # examples whose target word was cut off


def read_examples(
    subject: Subject, task: str, form: Form, pooling: Pooling, budget: Budget
) -> Examples:
    """The examples of a task, each one row or two.

    Sentences of a pair are rows of their own (`bi`) or one sequence together (`cross`); the
    target words of WiC are two rows in either form. A sentence is the mean over all its tokens,
    or its first one (`cls`). In the bi form a sentence that stands in several examples is one row.
    """
    rows = {split: _rows(subject.source, task, split, budget) for split in SPLITS}
    rows = {split: own for split, own in rows.items() if own}
    data_set, fields = TASKS[task]
    given = [row for own in rows.values() for row in own]
    split_N = np.repeat(list(rows), [len(own) for own in rows.values()])
    tokenizer, length, n_left_out = subject.encoder.tokenizer, subject.max_length, 0
    if task == "wic":
        found = find_targets(given, tokenizer, length, form)
        tokens, spans, n_left_out = found.tokens, found.spans, found.n_left_out
        place_NP = np.arange(2 * len(found.kept_N)).reshape(-1, 2)
        given, split_N = [given[k] for k in found.kept_N], split_N[found.kept_N]
    elif form == "cross" and len(fields) == 2:
        pairs = [(str(row[fields[0]]), str(row[fields[1]])) for row in given]
        tokens = tokenise_pairs(tokenizer, pairs, length)[0]
        spans = _spans(tokens, pooling)
        place_NP = np.arange(len(given))[:, None]
    else:
        texts: dict[str, int] = {}
        for row in given:
            for field in fields:
                texts.setdefault(str(row[field]), len(texts))
        tokens = tokenise(tokenizer, list(texts), length)
        spans = _spans(tokens, pooling)
        place_NP = np.array([[texts[str(row[field])] for field in fields] for row in given])
    label_N = np.array([row[data_set.target] for row in given])
    own = {split: split_N == split for split in rows}
    return Examples(
        tokens,
        spans,
        {split: torch.from_numpy(place_NP[at_N]) for split, at_N in own.items()},
        {split: torch.from_numpy(label_N[at_N]) for split, at_N in own.items()},
        n_left_out,
    )


def features(x_ND: Tensor, place_NP: Tensor) -> Tensor:
    """What a probe reads of each example: its row, or (u, v, |u − v|, u·v) of its two.

    >>> x = torch.tensor([[1.0], [3.0]])
    >>> features(x, torch.tensor([[0, 1]])).tolist()
    [[1.0, 3.0, 2.0, 3.0]]
    """
    if place_NP.shape[1] == 1:
        return x_ND[place_NP[:, 0]]
    return pair_features(x_ND[place_NP[:, 0]], x_ND[place_NP[:, 1]])


def distinct_rows(examples: Examples, split: str) -> Tensor:
    """The numbers of the different rows of a split, rising: of equal tokens and span the first.

    Such rows are equal in every layer, and repeated rows would raise every similarity.
    """
    tokens, spans = examples.tokens, examples.spans
    found: dict[tuple[tuple[int, ...], int, int], int] = {}
    for row in torch.unique(examples.place[split]).tolist():
        ids = tuple(tokens.ids[spans.sentence_N[row]])
        found.setdefault((ids, int(spans.start_N[row]), int(spans.stop_N[row])), row)
    return torch.tensor([*found.values()])


def _rows(source: Source, task: str, split: str, budget: Budget) -> list[Row]:
    """The examples of a split that have gold, at most as many as the budget has."""
    most = budget.train if split == "train" else budget.evaluated
    if task == "wic":
        return wic_pairs(source, split, most, budget.seed)
    data_set = TASKS[task].data_set
    rows = load_split(source, data_set, split)
    rows = [row for row in rows if row[data_set.target] != HIDDEN]
    return drawn(rows, most, budget.seed)


def _spans(tokens: Tokens, pooling: Pooling) -> Spans:
    spans = whole_sentences(tokens)
    if pooling == "mean":
        return spans
    return Spans(spans.sentence_N, spans.start_N, np.ones_like(spans.stop_N))
