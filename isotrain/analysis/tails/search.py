"""The search for tails in the tokens of a corpus, as records.

L layers, N rows (tokens), D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.encode import encode_rows
from isotrain.analysis.tails.dims import (
    extreme_shares,
    mean_scores,
    outlier_dimensions,
    share_error,
)
from isotrain.analysis.types import Record, Subject
from isotrain.analysis.word_samples import Sample, Units, draw_sentences
from isotrain.metrics.outlier_dims import outlier_dims

RANKS = 3  # dimensions that are named at each end


class Rule(NamedTuple):
    """What an outlier dimension is: see `outlier_dimensions`."""

    threshold: float
    layers_share: float


class Search(NamedTuple):
    """Rows, the score of each dimension in each layer, and the outliers, the farthest first."""

    sample: Sample
    rows_LND: np.ndarray
    score_LD: Tensor
    dims: list[int]
    rule: Rule


def above(x_LD: Tensor) -> Tensor:
    """The layers above the embeddings; of word vectors, which have layer 0 alone, that one.

    >>> above(torch.tensor([[1.0], [2.0]])).tolist(), above(torch.tensor([[1.0]])).tolist()
    ([[2.0]], [[1.0]])
    """
    return x_LD[1:] if len(x_LD) > 1 else x_LD


def draw_tokens(subject: Subject, sentences: Sequence[str], max_rows: int) -> Sample:
    """At most `max_rows` tokens of whole sentences, special and unknown tokens left out.

    Punctuation counts: tails sit in every row. Sentences are drawn by the seed, and each of
    several that are equal to the tokenizer is taken once.
    """
    units = Units(subject.encoder.tokenizer, unit="piece", punctuation=True)
    return draw_sentences(sentences, units, subject.max_length, subject.seed, max_rows)


def find_tails(subject: Subject, sentences: Sequence[str], max_rows: int, rule: Rule) -> Search:
    """The tokens of drawn sentences, and the outlier dimensions that they show."""
    sample = draw_tokens(subject, sentences, max_rows)
    rows_LND = encode_rows(subject, "fit", sample.tokens, sample.spans)
    mean_LD = torch.stack([torch.from_numpy(x_ND).double().mean(dim=0) for x_ND in rows_LND])
    score_LD = mean_scores(mean_LD)
    return Search(sample, rows_LND, score_LD, outlier_dimensions(above(score_LD), *rule), rule)


def search_records(tails: Search) -> list[Record]:
    """What the rows show: a record a layer, for the ends over all layers, and for each outlier.

    `layer`: the dimension that most often holds the smallest entry of a row, and the largest,
    with the share of rows and its standard error over sentences; the dimension whose mean lies
    farthest from the others, in their standard deviations; the one that gives most of the mean
    cosine, and its part. `tail` and `outlier` are over the rows of all layers above the
    embeddings.
    """
    records: list[Record] = []
    low_LD, high_LD = [], []
    for layer, x_ND in enumerate(tails.rows_LND):
        x = torch.from_numpy(x_ND)
        low_D, high_D = extreme_shares(x)
        low_LD.append(low_D)
        high_LD.append(high_D)
        records.append(_layer(tails, x, layer, low_D, high_D))
    low_D, high_D = (above(torch.stack(share)).mean(dim=0) for share in (low_LD, high_LD))
    return [*records, *_ends(tails, low_D, high_D), *_outliers(tails, low_D, high_D)]


def _layer(tails: Search, x_ND: Tensor, layer: int, low_D: Tensor, high_D: Tensor) -> Record:
    score_D, sentence_N = tails.score_LD[layer], tails.sample.sentence_N
    low, high, far = int(low_D.argmax()), int(high_D.argmax()), int(score_D.abs().argmax())
    cosine = outlier_dims(x_ND, n_top=1)
    return {
        "kind": "layer",
        "layer": layer,
        "n_rows": len(x_ND),
        "n_sentences": len(torch.unique(sentence_N)),
        "minimum_dimension": low,
        "minimum_share": float(low_D[low]),
        "minimum_share_error": share_error(x_ND.argmin(dim=1) == low, sentence_N),
        "maximum_dimension": high,
        "maximum_share": float(high_D[high]),
        "maximum_share_error": share_error(x_ND.argmax(dim=1) == high, sentence_N),
        "mean_dimension": far,
        "mean_score": float(score_D[far]),
        "n_beyond": int((score_D.abs() > tails.rule.threshold).sum()),
        "cosine_dimension": int(cosine["index_1"]),
        "cosine_share": float(cosine["share_1"]),
    }


def _ends(tails: Search, low_D: Tensor, high_D: Tensor) -> list[Record]:
    score_LD = above(tails.score_LD)
    return [
        {
            "kind": "tail",
            "end": end,
            "rank": rank,
            "dimension": i,
            "share": float(share_D[i]),
            "n_rows": len(tails.sample.spans) * len(score_LD),
            "mean_score": float(score_LD[:, i].mean()),
            "is_outlier": int(i in tails.dims),
        }
        for end, share_D in (("minimum", low_D), ("maximum", high_D))
        for rank, i in enumerate(share_D.topk(min(RANKS, len(share_D))).indices.tolist(), start=1)
    ]


def _outliers(tails: Search, low_D: Tensor, high_D: Tensor) -> list[Record]:
    score_LD = above(tails.score_LD)
    return [
        {
            "kind": "outlier",
            "rank": rank,
            "dimension": i,
            "layers_beyond": int((score_LD[:, i].abs() > tails.rule.threshold).sum()),
            "n_layers": len(score_LD),
            "mean_score": float(score_LD[:, i].mean()),
            "minimum_share": float(low_D[i]),
            "maximum_share": float(high_D[i]),
        }
        for rank, i in enumerate(tails.dims, start=1)
    ]
