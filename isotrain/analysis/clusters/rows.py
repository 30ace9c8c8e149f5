"""Rows of the clusters analysis: tokens that are drawn, and what is known of each.

N rows, D dimensions, V token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.clusters.texts import Texts
from isotrain.analysis.encode import Spans, Tokens, encode_rows
from isotrain.analysis.types import Cell, Subject
from isotrain.analysis.vectors import Vectors
from isotrain.geometry.groups import hashed_order

SAME = 1e-4  # of its length: two rows that are closer are one, told apart by rounding


class Sample(NamedTuple):
    """Rows of every layer, in the order in which they were drawn."""

    layers: Sequence[int]
    averaged: Sequence[int]  # layers that a mean over layers is of
    rows: Callable[[int], Tensor]  # of a layer, [N, D] float32
    type_N: Tensor  # number of the type (token id) of each row
    token_of: Mapping[int, str]  # how each type reads
    frequency_of: Mapping[int, int]  # occurrences of each type in all of the text
    facts: Mapping[str, Cell]  # what it was drawn from, for the record


def sample_encoder(subject: Subject, texts: Texts, max_rows: int) -> Sample:
    """Tokens of an encoder: at most `max_rows` of those of the texts.

    They are drawn by hashing positions with the seed. Special tokens, pads and the unknown token,
    which stands for many words, are never drawn. An encoder without blocks gives a type the same
    row everywhere, so there each type is drawn once.
    """
    encoder, tokenizer = subject.encoder, subject.encoder.tokenizer
    length = [len(ids) for ids in texts.ids]
    token = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts.ids])
    place = np.repeat(np.arange(len(texts.ids)), length)
    position = np.concatenate([np.arange(n) for n in length])
    allowed = token != (-1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id)
    if texts.special is not None:
        allowed &= np.concatenate([np.asarray(marks) for marks in texts.special]) == 0
    order = hashed_order(len(token), ~subject.seed).numpy()
    order = order[allowed[order]]
    if encoder.n_blocks == 0:
        order = order[np.sort(np.unique(token[order], return_index=True)[1])]
    order = order[:max_rows]
    spans = Spans(place[order], position[order], position[order] + 1)
    tokens = Tokens([[*map(int, ids)] for ids in texts.ids], [], [], [], 0)
    types = np.unique(token[order])
    facts = {
        "n_texts": len(np.unique(place[order])),
        "n_texts_of": texts.n_of,
        "n_tokens": int(texts.count_V.sum()),
        "n_left": texts.n_left,
        "n_rows": len(order),
        "n_types": len(types),
    }
    layers = range(encoder.n_blocks + 1)
    return Sample(
        layers,
        layers[1:] or layers,
        lambda layer: torch.from_numpy(
            np.array(encode_rows(subject, "clusters", tokens, spans)[layer])
        ),
        torch.from_numpy(token[order]),
        {int(v): text_of(tokenizer, int(v)) for v in types},
        {int(v): int(texts.count_V[v]) for v in types},
        facts,
    )


def sample_vectors(vectors: Vectors, max_rows: int, seed: int) -> Sample:
    """At most `max_rows` tokens of vectors that are given, drawn by hashing positions.

    Types are what the tokens read; how often each occurs is counted in the file.
    """
    number_of: dict[str, int] = {}
    type_of = np.array([number_of.setdefault(t, len(number_of)) for t in vectors.tokens])
    count_V = np.bincount(type_of)
    names = [*number_of]
    at_N = hashed_order(len(vectors.tokens), seed)[:max_rows].numpy()
    types = np.unique(type_of[at_N])
    facts = {
        "n_texts": vectors.n_sentences(at_N),
        "n_tokens": len(vectors.tokens),
        "n_rows": len(at_N),
        "n_types": len(types),
    }
    return Sample(
        vectors.layers,
        vectors.layers,
        lambda layer: torch.from_numpy(vectors.rows(layer, at_N)),
        torch.from_numpy(type_of[at_N]),
        {int(v): names[v] for v in types},
        {int(v): int(count_V[v]) for v in types},
        facts,
    )


def text_of(tokenizer: Any, token: int) -> str:
    """A token as text, without the marks of its tokenizer.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> tokenizer = build_tiny(8, 1, 1).tokenizer
    >>> [text_of(tokenizer, token) for token in tokenizer("dog.")["input_ids"][1:-1]]
    ['dog', '.']
    """
    piece = tokenizer.convert_ids_to_tokens(token)
    return str(tokenizer.convert_tokens_to_string([piece])).strip()


def is_symbol(text: str) -> bool:
    """Whether a token has no letter and no digit.

    >>> is_symbol(","), is_symbol("##s")
    (True, False)
    """
    return not any(character.isalnum() for character in text)


def distinct_rows(x_ND: Tensor, type_N: Tensor) -> Tensor:
    """Positions, ascending, of the rows of a type that are not the same as another one of it.

    Of rows of one type that differ by less than 1e-4 of their length one stays. There are such
    where a state does not see all of its context: a static vector, the embedding output of a
    token at the same position, the first token of a causal encoder. They would be neighbours at
    distance zero, and instances of a type that no context has changed.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> distinct_rows(x, torch.tensor([7, 7, 8, 7])).tolist()
    [0, 2, 3]
    """
    generator = torch.Generator().manual_seed(0)
    direction_D = torch.randn(x_ND.shape[1], generator=generator, dtype=torch.float64)
    along_N = x_ND.double() @ direction_D  # rows that are the same lie side by side on it
    order_N = torch.from_numpy(np.lexsort((along_N.numpy(), type_N.numpy())))
    sorted_ND = x_ND[order_N]
    apart_N = (sorted_ND[1:] - sorted_ND[:-1]).norm(dim=1)
    same_N = (apart_N <= SAME * sorted_ND[1:].norm(dim=1)) & (type_N[order_N].diff() == 0)
    # The first drawn of each run of equal rows stays, whatever rounding made of their order.
    run_N = torch.cat([torch.zeros(1, dtype=torch.long), (~same_N).long().cumsum(dim=0)])
    first_R = torch.full((int(run_N[-1]) + 1,), len(x_ND))
    first_R = first_R.scatter_reduce(0, run_N, order_N, "amin")
    return first_R.sort().values
