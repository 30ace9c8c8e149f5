"""Frozen features of rows, made when they are read: nothing but the vectors is kept.

N rows, J vectors of a row, V vectors, D dimensions, B rows at a time, F features.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from isotrain.analysis.data_scale.examples import NOWHERE, Examples
from isotrain.analysis.encode import Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.types import Subject
from isotrain.encoders.static import TableEncoder
from isotrain.model.heads import pair_features


class Features:
    """The features of rows: one vector, several side by side, or those of a pair.

    A pair u, v gives (u, v, |u − v|, u·v); a vector that a row lacks is 0.
    """

    def __init__(self, vector_VD: Tensor, vector_NJ: Tensor, is_pair: bool) -> None:
        self._vector_VD, self._vector_NJ, self._is_pair = vector_VD, vector_NJ, is_pair
        self.width = vector_VD.shape[1] * (4 if is_pair else vector_NJ.shape[1])

    def __len__(self) -> int:
        return len(self._vector_NJ)

    def __call__(self, row_B: Tensor) -> Tensor:
        """`[B, F]`, in float32."""
        vector_BJ = self._vector_NJ[row_B]
        x_BJD = self._vector_VD[vector_BJ.clamp_min(0)]
        x_BJD[vector_BJ == NOWHERE] = 0.0
        if self._is_pair:
            return pair_features(*x_BJD.unbind(dim=1))
        return x_BJD.flatten(1)


class Encoded(NamedTuple):
    """Features of examples by one encoder, and facts on its reading."""

    features: Features
    unknown_share: float  # of the tokens that are not special
    n_cut: int  # texts longer than `max_length`
    n_absent: int  # vectors without a token, of word vectors without a known one: 0


def encoded(subject: Subject, name: str, examples: Examples, layer: int) -> Encoded:
    """The features of all rows at a layer; their vectors are means over tokens, none special.

    Of word vectors they are means over the known tokens: an unknown word says nothing.
    """
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
    ordinary = [
        token
        for ids, marks in zip(tokens.ids, tokens.special, strict=True)
        for token, special in zip(ids, marks, strict=True)
        if not special
    ]
    unknown = 0.0
    if encoder.tokenizer.unk_token_id is not None:
        unknown = ordinary.count(encoder.tokenizer.unk_token_id) / max(1, len(ordinary))
    features = Features(vector_VD, torch.from_numpy(place_NJ), examples.is_pair)
    return Encoded(features, unknown, tokens.n_cut, n_absent)


def spans_of(tokens: Tokens, examples: Examples) -> tuple[Spans, np.ndarray]:
    """The tokens of each vector's characters, and the place `[V]` of its span; −1 without one.

    Tokens that reach into the characters count. Special ones never do, and those behind a cut
    are not there.
    """
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
