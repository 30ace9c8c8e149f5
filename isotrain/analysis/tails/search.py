"""Records of the dimensions that dominate the tokens of a corpus.

L layers, N rows (tokens), D dimensions, G sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.encode import encode_rows
from isotrain.analysis.selection import Sample, Units, draw_sentences
from isotrain.analysis.types import Cell, Record, Subject
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import check_groups, group_sums
from isotrain.metrics.outlier_dims import outlier_dims


def extreme_shares(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Share `[D]` of embeddings with their smallest entry in each dimension, and their largest.

    Each sums to 1 and is near 1/D if no dimension dominates. Ties count for the first of their
    dimensions. Luo 2020.

    >>> low, high = extreme_shares(torch.tensor([[-9.0, 0.0, 1.0], [-8.0, 3.0, 1.0]]))
    >>> low.tolist(), high.tolist()
    ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5])
    """
    x_ND = Cloud(x_ND, min_rows=1).rows
    n, d = x_ND.shape
    low_D, high_D = (
        torch.bincount(at_N, minlength=d).double() / n
        for at_N in (x_ND.argmin(dim=1), x_ND.argmax(dim=1))
    )
    return low_D, high_D


def share_error(hit_N: Tensor, sentences_N: Tensor) -> float:
    """Standard error of the share of hits among embeddings, over sentences.

    √(Σ_g (h_g − n_g·p)²)/N, h_g the hits among the n_g embeddings of sentence g and p the share.

    >>> round(share_error(torch.tensor([1, 1, 0, 0]), torch.tensor([3, 3, 5, 5])), 4)
    0.3536
    """
    hit_N1 = hit_N.double()[:, None]
    groups = check_groups(hit_N1, sentences_N)
    hits_G, share = group_sums(hit_N1, groups)[:, 0], hit_N1.mean()
    spread = (hits_G - groups.count_G * share).square().sum()
    return float(spread.sqrt() / len(hit_N1))


def mean_scores(mean_LD: Tensor) -> Tensor:
    """z-score of each dimension of a mean vector among its dimensions, `[L, D]`.

    (m_i − m̄)/s, m̄ and s the mean and standard deviation (divisor D) of the D entries of the mean
    vector of a layer. In [−√(D−1), √(D−1)]; zeros where all entries are equal.

    >>> mean_scores(torch.tensor([[1.0, 3.0, 1.0, 3.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    mean_LD = mean_LD.double()
    apart_LD = mean_LD - mean_LD.mean(dim=1, keepdim=True)
    spread_L1 = apart_LD.square().mean(dim=1, keepdim=True).sqrt()
    return apart_LD / torch.where(spread_L1 > 0, spread_L1, 1.0)


def outlier_dimensions(score_LD: Tensor, threshold: float, layers_share: float) -> list[int]:
    """Dimensions beyond the threshold in enough layers, largest deviation first.

    |score| > `threshold` in at least `layers_share` of the L layers: by chance 0.27 % of the
    entries of one Gaussian mean vector are beyond 3. None can be found where √(D−1) ≤ threshold.

    >>> outlier_dimensions(torch.tensor([[0.0, 4.0, -5.0], [0.0, 1.0, -6.0]]), 3.0, 0.75)
    [2]
    """
    beyond_D = (score_LD.abs() > threshold).double().mean(dim=0) >= layers_share
    order_D = score_LD.abs().mean(dim=0).argsort(descending=True, stable=True)
    return [int(i) for i in order_D if beyond_D[i]]


RANKS = 3  # dimensions named at each end


class Search(NamedTuple):
    """Tokens, z-scores of dimensions per layer, and outliers, largest deviation first."""

    sample: Sample
    rows_LND: np.ndarray
    score_LD: Tensor
    dims: list[int]
    threshold: float


def above(x_LD: Tensor) -> Tensor:
    """The layers above the embeddings; for word vectors, which have only layer 0, that one."""
    return x_LD[1:] if len(x_LD) > 1 else x_LD


def draw_tokens(subject: Subject, sentences: Sequence[str], max_rows: int) -> Sample:
    """Up to `max_rows` tokens of whole sentences, punctuation included, sampled by the seed."""
    units = Units(subject.encoder.tokenizer, unit="piece", punctuation=True)
    return draw_sentences(sentences, units, subject.max_length, subject.seed, max_rows)


def find_tails(
    subject: Subject,
    sentences: Sequence[str],
    max_rows: int,
    threshold: float,
    layers_share: float,
) -> Search:
    """Tokens of sampled sentences, and their outlier dimensions."""
    sample = draw_tokens(subject, sentences, max_rows)
    rows_LND = encode_rows(subject, "fit", sample.tokens, sample.spans)
    mean_LD = torch.stack([torch.from_numpy(x_ND).double().mean(dim=0) for x_ND in rows_LND])
    score_LD = mean_scores(mean_LD)
    dims = outlier_dimensions(above(score_LD), threshold, layers_share)
    return Search(sample, rows_LND, score_LD, dims, threshold)


def search_records(tails: Search) -> list[Record]:
    """One record per layer; over the layers above the embeddings, one per end and outlier.

    `layer` names the dimensions that most often hold a token's smallest and largest entry, the one
    with the most extreme mean, and the one that contributes most to the mean cosine.
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
    score_LD = above(tails.score_LD)
    for end, found in (("minimum", low), ("maximum", high)):
        order = found.share_D.argsort(descending=True, stable=True)[:RANKS].tolist()
        for rank, i in enumerate(order, start=1):
            record: dict[str, Cell] = {"kind": "tail", "end": end, "rank": rank, "dimension": i}
            record |= {"share": float(found.share_D[i]), "share_error": found.error(i)}
            record["n_rows"] = len(tails.sample.spans) * len(score_LD)
            record |= {
                "mean_score": float(score_LD[:, i].mean()),
                "is_outlier": int(i in tails.dims),
            }
            records.append(record)
    for rank, i in enumerate(tails.dims, start=1):
        record = {"kind": "outlier", "rank": rank, "dimension": i}
        record["layers_beyond"] = int((score_LD[:, i].abs() > tails.threshold).sum())
        record |= {"n_layers": len(score_LD), "mean_score": float(score_LD[:, i].mean())}
        record |= low.share_of("minimum", i) | high.share_of("maximum", i)
        records.append(record)
    return records


class _End(NamedTuple):
    """The smallest (or largest) entry of each token, for one or more layers."""

    share_D: Tensor  # of tokens with their extreme in a dimension
    at_LN: Tensor  # dimension of the extreme
    sentence_N: Tensor

    @classmethod
    def over(cls, layers: Sequence[_End]) -> _End:
        """Pool the layers above the embeddings."""
        share_D = above(torch.stack([one.share_D for one in layers])).mean(dim=0)
        at_LN = above(torch.cat([one.at_LN for one in layers]))
        return cls(share_D, at_LN, layers[0].sentence_N)

    def error(self, i: int) -> float:
        """Standard error of a share over sentences; a sentence has its tokens of all layers."""
        return share_error((self.at_LN == i).double().mean(dim=0), self.sentence_N)

    def share_of(self, end: str, i: int) -> dict[str, Cell]:
        """The share of a dimension and its standard error."""
        return {f"{end}_share": float(self.share_D[i]), f"{end}_share_error": self.error(i)}


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
        **low.share_of("minimum", least),
        "maximum_dimension": most,
        **high.share_of("maximum", most),
        "mean_dimension": far,
        "mean_score": float(score_D[far]),
        "n_beyond": int((score_D.abs() > tails.threshold).sum()),
        "cosine_dimension": int(cosine["index_1"]),
        "cosine_share": float(cosine["share_1"]),
    }
