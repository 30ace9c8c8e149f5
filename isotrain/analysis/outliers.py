"""Outlier dimensions of an encoder, and embeddings without them: cut to zero, or whitened.

L layers, N embeddings (tokens), D dimensions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.encode import Sample, Words, draw_sentences, encode_rows
from isotrain.analysis.types import Subject
from isotrain.geometry.cosine import paired_cosines
from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.whitening import Whitening


def mean_scores(mean_LD: Tensor) -> Tensor:
    """z-score of each dimension of a mean vector among its dimensions, `[L, D]`.

    (m_i − m̄)/s, m̄ and s the mean and standard deviation (divisor D) of the D entries of the mean
    vector of a layer. In [−√(D−1), √(D−1)]; zeros where all entries are equal.

    >>> mean_scores(torch.tensor([[1.0, 3.0, 1.0, 3.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    mean_LD = mean_LD.double()
    deviation_LD = mean_LD - mean_LD.mean(dim=1, keepdim=True)
    spread_L1 = deviation_LD.square().mean(dim=1, keepdim=True).sqrt()
    return deviation_LD / torch.where(spread_L1 > 0, spread_L1, 1.0)


def outlier_dimensions(score_LD: Tensor, threshold: float, layers_share: float) -> list[int]:
    """Dimensions beyond the threshold in enough layers, largest deviation first.

    |score| > `threshold` in at least `layers_share` of the L layers: by chance 0.27 % of the
    entries of one Gaussian mean vector are beyond 3. None can be found where √(D−1) ≤ threshold.

    >>> outlier_dimensions(torch.tensor([[0.0, 4.0, -5.0], [0.0, 1.0, -6.0]]), 3.0, 0.75)
    [2]
    """
    is_outlier_D = (score_LD.abs() > threshold).double().mean(dim=0) >= layers_share
    order_D = score_LD.abs().mean(dim=0).argsort(descending=True, stable=True)
    return [int(i) for i in order_D if is_outlier_D[i]]


class Search(NamedTuple):
    """Tokens, z-scores of dimensions per layer, and outliers, largest deviation first."""

    sample: Sample
    rows_LND: np.ndarray
    score_LD: Tensor
    dims: list[int]
    threshold: float


def above(x_LD: Tensor) -> Tensor:
    """The layers above the embedding output; for word vectors, their only layer 0."""
    return x_LD[1:] if len(x_LD) > 1 else x_LD


def draw_tokens(subject: Subject, sentences: Sequence[str], max_rows: int) -> Sample:
    """Up to `max_rows` tokens of whole sentences, punctuation included, sampled by the seed."""
    words = Words(subject.encoder.tokenizer, punctuation=True)
    return draw_sentences(sentences, words, subject.max_length, subject.seed, max_rows)


def find_tails(
    subject: Subject,
    sentences: Sequence[str],
    max_rows: int,
    threshold: float,
    layers_share: float,
) -> Search:
    """Tokens of sampled sentences, and their outlier dimensions."""
    sample = draw_tokens(subject, sentences, max_rows)
    rows_LND = encode_rows(subject, sample.tokens, sample.spans)
    mean_LD = torch.stack([torch.from_numpy(x_ND).double().mean(dim=0) for x_ND in rows_LND])
    score_LD = mean_scores(mean_LD)
    dims = outlier_dimensions(above(score_LD), threshold, layers_share)
    return Search(sample, rows_LND, score_LD, dims, threshold)


NONE, CUT, WHITENED = "none", "cut", "whitened"
TREATMENTS = (NONE, CUT, WHITENED)

Treatment = Callable[[Tensor], Tensor]


def treatments(fit_ND: Tensor, dims: Sequence[int], epsilon: float) -> Mapping[str, Treatment]:
    """Maps `[N, D] -> [N, D]` by name, float64: `none`, `cut` and `whitened`.

    `cut` sets `dims` to zero; `whitened` is (x − μ)·U diag((λ + ε·λ̄)^−1/2) with the mean and
    directions of `fit`. ε = 1e-6 keeps directions emptied by a norm small. Luo 2020; Su 2021
    (whitening, ε = 0).

    >>> x = torch.tensor([[3.0, 50.0], [1.0, 50.0], [-4.0, 51.0]])
    >>> treatments(x, [1], 0.0)["cut"](x[:1]).tolist()
    [[3.0, 0.0]]
    """
    whitening = Whitening(fit_ND.shape[1], epsilon, keep_scale=False).estimate(fit_ND.double())
    cut_dims = torch.tensor(list(dims), dtype=torch.long)
    return {
        NONE: lambda x_ND: x_ND.double(),
        CUT: lambda x_ND: x_ND.double().index_fill(1, cut_dims, 0.0),
        WHITENED: lambda x_ND: apply_whitening(x_ND.double(), whitening),
    }


def pair_cosines(u_ND: Tensor, v_ND: Tensor) -> Tensor:
    """Cosine `[N]` of each pair (u_i, v_i), in [−1, 1]; 0 if either vector is zero."""
    return paired_cosines(u_ND, v_ND).clamp(-1.0, 1.0)
