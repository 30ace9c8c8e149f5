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
    embeddings; a sentence counts with its rows of all of them in the error.
    """
    records: list[Record] = []
    ends = []
    for layer, x_ND in enumerate(tails.rows_LND):
        x, sentence_N = torch.from_numpy(x_ND), tails.sample.sentence_N
        low_D, high_D = extreme_shares(x)
        low = _End(low_D, x.argmin(dim=1)[None], sentence_N)
        high = _End(high_D, x.argmax(dim=1)[None], sentence_N)
        ends.append((low, high))
        records.append(_layer(tails, x, layer, low, high))
    low, high = (_End.over(of_layers) for of_layers in zip(*ends, strict=True))
    return [*records, *_ends(tails, low, high), *_outliers(tails, low, high)]


class _End(NamedTuple):
    """The smallest, or the largest, entries of the rows of one or more layers."""

    share_D: Tensor  # of the rows whose extreme sits in a dimension
    at_LN: Tensor  # where it sits
    sentence_N: Tensor

    @classmethod
    def over(cls, layers: Sequence[_End]) -> _End:
        """Those of the layers above the embeddings."""
        share_D = above(torch.stack([one.share_D for one in layers])).mean(dim=0)
        at_LN = above(torch.cat([one.at_LN for one in layers]))
        return cls(share_D, at_LN, layers[0].sentence_N)

    def error(self, i: int) -> float:
        """Standard error of a share over sentences, each with its rows of all layers."""
        return share_error((self.at_LN == i).double().mean(dim=0), self.sentence_N)


def _layer(tails: Search, x_ND: Tensor, layer: int, low: _End, high: _End) -> Record:
    score_D = tails.score_LD[layer]
    least, most, far = (int(x_D.argmax()) for x_D in (low.share_D, high.share_D, score_D.abs()))
    cosine = outlier_dims(x_ND, n_top=1)
    return {
        "kind": "layer",
        "layer": layer,
        "n_rows": len(x_ND),
        "n_sentences": len(torch.unique(tails.sample.sentence_N)),
        "minimum_dimension": least,
        "minimum_share": float(low.share_D[least]),
        "minimum_share_error": low.error(least),
        "maximum_dimension": most,
        "maximum_share": float(high.share_D[most]),
        "maximum_share_error": high.error(most),
        "mean_dimension": far,
        "mean_score": float(score_D[far]),
        "n_beyond": int((score_D.abs() > tails.rule.threshold).sum()),
        "cosine_dimension": int(cosine["index_1"]),
        "cosine_share": float(cosine["share_1"]),
    }


def _ends(tails: Search, low: _End, high: _End) -> list[Record]:
    score_LD = above(tails.score_LD)
    return [
        {
            "kind": "tail",
            "end": end,
            "rank": rank,
            "dimension": i,
            "share": float(found.share_D[i]),
            "share_error": found.error(i),
            "n_rows": len(tails.sample.spans) * len(score_LD),
            "mean_score": float(score_LD[:, i].mean()),
            "is_outlier": int(i in tails.dims),
        }
        for end, found in (("minimum", low), ("maximum", high))
        for rank, i in enumerate(_foremost(found.share_D), start=1)
    ]


def _foremost(share_D: Tensor) -> list[int]:
    return [int(i) for i in share_D.argsort(descending=True, stable=True)[:RANKS]]


def _outliers(tails: Search, low: _End, high: _End) -> list[Record]:
    score_LD = above(tails.score_LD)
    return [
        {
            "kind": "outlier",
            "rank": rank,
            "dimension": i,
            "layers_beyond": int((score_LD[:, i].abs() > tails.rule.threshold).sum()),
            "n_layers": len(score_LD),
            "mean_score": float(score_LD[:, i].mean()),
            "minimum_share": float(low.share_D[i]),
            "minimum_share_error": low.error(i),
            "maximum_share": float(high.share_D[i]),
            "maximum_share_error": high.error(i),
        }
        for rank, i in enumerate(tails.dims, start=1)
    ]
