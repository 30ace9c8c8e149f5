"""Frozen features of rows, made when they are read: nothing but the vectors is kept.

N rows, J vectors of a row, V vectors, D dimensions, B rows at a time, F features.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.data_scale.examples import NOWHERE, Examples
from isotrain.analysis.encode import Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.types import Subject

BLOCK = 4096  # rows whose moments are summed at a time


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
            u, v = x_BJD.unbind(dim=1)
            return torch.cat([u, v, (u - v).abs(), u * v], dim=1)
        return x_BJD.flatten(1)

    def moments(self, row_n: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation `[F]` over some rows; 1 for what does not vary."""
        sum_F = torch.zeros(self.width, dtype=torch.float64)
        square_F = torch.zeros_like(sum_F)
        for row_B in torch.split(row_n, BLOCK):
            sum_F += self(row_B).double().sum(dim=0)
        mean_F = sum_F / len(row_n)
        for row_B in torch.split(row_n, BLOCK):
            square_F += (self(row_B).double() - mean_F).square().sum(dim=0)
        sd_F = (square_F / len(row_n)).sqrt()
        varies_F = sd_F > 1e-6 * mean_F.abs().clamp_min(torch.finfo(torch.float32).tiny)
        return mean_F.float(), sd_F.where(varies_F, 1.0).float()


class Encoded(NamedTuple):
    """Features of examples by one encoder, and facts on its reading."""

    features: Features
    unknown_share: float  # of the tokens that are not special
    n_cut: int  # texts longer than `max_length`
    n_absent: int  # vectors without a token: 0


def encoded(subject: Subject, name: str, examples: Examples, layer: int) -> Encoded:
    """The features of all rows at a layer; their vectors are means over tokens, none special."""
    tokenizer = subject.encoder.tokenizer
    tokens = tokenise(tokenizer, examples.texts, subject.max_length)
    spans, place_V = spans_of(tokens, examples)
    (vector_VD,) = encode_rows(subject, name, tokens, spans, [layer])
    place_NJ = np.where(examples.vector_NJ == NOWHERE, NOWHERE, place_V[examples.vector_NJ])
    ordinary = [
        token
        for ids, marks in zip(tokens.ids, tokens.special, strict=True)
        for token, special in zip(ids, marks, strict=True)
        if not special
    ]
    unknown = 0.0
    if tokenizer.unk_token_id is not None:
        unknown = ordinary.count(tokenizer.unk_token_id) / max(1, len(ordinary))
    features = Features(torch.from_numpy(vector_VD), torch.from_numpy(place_NJ), examples.is_pair)
    return Encoded(features, unknown, tokens.n_cut, int((place_V == NOWHERE).sum()))


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
