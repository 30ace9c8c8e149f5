"""Token embeddings of sentences on disk: a sample of them for statistics, all of them pooled.

N rows (tokens, special ones too), D dimensions, U sentences, M rows of a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.encode import Spans, encode_rows, tokenise
from isotrain.analysis.types import Subject
from isotrain.geometry.groups import hashed_order

BLOCK = 8192  # rows that are transformed at a time

Transform = Callable[[Tensor], Tensor]
"""Rows `[M, D]` to rows `[M, D]`, each by itself."""


class TokenCloud(NamedTuple):
    """Every token of some sentences as a row, at one layer."""

    rows_ND: np.ndarray  # of a file on disk
    sentence_N: np.ndarray
    token_N: np.ndarray  # ids
    special_N: np.ndarray  # whether a row is CLS, SEP or the like
    n_sentences: int
    n_cut: int  # sentences that were longer than `max_length`


Clouds = Callable[[], Mapping[int, TokenCloud]]
"""The cloud of each layer; the sentences are encoded at the first call."""


class Sample(NamedTuple):
    """Rows of ordinary tokens, those of whole sentences."""

    x_MD: Tensor
    token_M: np.ndarray  # ids
    n_sentences: int


def token_clouds(
    subject: Subject,
    name: str,
    sentences: Sequence[str],
    layers: Sequence[int],
    most: int | None = None,
) -> dict[int, TokenCloud]:
    """The tokens of sentences at each layer, pads never among them; streamed to `<name>.npy`.

    One forward pass gives all layers. With `most`, only the tokens of whole sentences that are
    drawn until so many ordinary ones are together.
    """
    tokens = tokenise(subject.encoder.tokenizer, sentences, subject.max_length)
    n_tokens_U = np.array([len(ids) for ids in tokens.ids], dtype=np.int64)
    chosen_U = np.arange(len(sentences))
    if most is not None:
        n_ordinary_U = n_tokens_U - np.array([sum(own) for own in tokens.special])
        chosen_U = drawn(n_ordinary_U, most, subject.seed)
    sentence_N = np.repeat(chosen_U, n_tokens_U[chosen_U])
    start_N = np.concatenate([np.arange(n) for n in n_tokens_U[chosen_U]]).astype(np.int64)
    spans = Spans(sentence_N, start_N, start_N + 1)
    rows_LND = encode_rows(subject, name, tokens, spans, layers)
    token_N = np.concatenate([tokens.ids[i] for i in chosen_U]).astype(np.int64)
    special_N = np.concatenate([tokens.special[i] for i in chosen_U]).astype(bool)
    return {
        layer: TokenCloud(rows_ND, sentence_N, token_N, special_N, len(sentences), tokens.n_cut)
        for layer, rows_ND in zip(layers, rows_LND, strict=True)
    }


def drawn(n_rows_U: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Sentences, drawn by hashing their positions, whose rows fill `most`; one at least.

    >>> drawn(np.array([3, 3, 3]), 7, seed=0).size, drawn(np.array([3, 3, 3]), 9, seed=0)
    (2, array([0, 1, 2]))
    """
    order_U = hashed_order(len(n_rows_U), seed).numpy()
    n_fitting = int(np.searchsorted(np.cumsum(n_rows_U[order_U]), most, side="right"))
    return np.sort(order_U[: max(1, n_fitting)])


def sample(cloud: TokenCloud, most: int, seed: int, among_U: np.ndarray | None = None) -> Sample:
    """Ordinary tokens of whole sentences, `most` at most; of the sentences `among`, if given."""
    ordinary_N = ~cloud.special_N
    if among_U is not None:
        ordinary_N &= np.isin(cloud.sentence_N, among_U)
    sentence_N = cloud.sentence_N[ordinary_N]
    own_U, n_rows_U = np.unique(sentence_N, return_counts=True)
    chosen_U = own_U[drawn(n_rows_U, most, seed)]
    at_M = np.flatnonzero(ordinary_N)[np.isin(sentence_N, chosen_U)]
    return Sample(torch.from_numpy(cloud.rows_ND[at_M]), cloud.token_N[at_M], len(chosen_U))


def pooled(cloud: TokenCloud, transform: Transform | None, specials: bool = False) -> Tensor:
    """Mean of the transformed rows of each sentence, `[U, D]`; all rows, a block at a time.

    CLS and SEP are in the mean with `specials` alone. A sentence without a row is zero, so that
    its cosine with any other is 0.
    """
    sum_UD = torch.zeros(cloud.n_sentences, cloud.rows_ND.shape[1])
    count_U1 = torch.zeros(cloud.n_sentences, 1)
    for start in range(0, len(cloud.rows_ND), BLOCK):
        kept_B = np.flatnonzero(specials | ~cloud.special_N[start : start + BLOCK])
        if not len(kept_B):
            continue
        y_BD = torch.from_numpy(np.array(cloud.rows_ND[start : start + BLOCK][kept_B]))
        if transform is not None:
            y_BD = transform(y_BD)
        at_B = torch.from_numpy(cloud.sentence_N[start : start + BLOCK][kept_B])
        sum_UD.index_add_(0, at_B, y_BD)
        count_U1.index_add_(0, at_B, torch.ones(len(at_B), 1))
    return sum_UD / count_U1.clamp_min(1.0)
