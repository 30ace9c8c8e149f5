"""Embeddings of the clusters analysis: tokens of chunks or sentences, or given vectors.

N embeddings, D dimensions, C chunks, T tokens of a chunk, V token ids.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.data_sets import RUNNING, read_corpus
from isotrain.analysis.encode import CHUNK, Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.types import Cell, Subject
from isotrain.analysis.vectors import Vectors
from isotrain.geometry.groups import hashed_order
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import load_split
from isotrain.tasks.text import UNKNOWN

SAME = 1e-4  # of its length: closer embeddings are equal up to rounding


class Texts(NamedTuple):
    """Sampled chunks or sentences as token ids, with a mask of measurable tokens."""

    ids: Sequence[Sequence[int]]
    special: Sequence[Sequence[int]] | None  # 1 = CLS, SEP; None: there are none
    n_of: int  # chunks or sentences that they were drawn from
    n_left: int  # tokens after the last whole chunk, or truncated sentences
    count_V: np.ndarray  # occurrences of each token id in all of the corpus


class Sample(NamedTuple):
    """Embeddings of every layer, in sampling order."""

    layers: Sequence[int]
    averaged: Sequence[int]  # layers that a mean over layers is of
    rows: Callable[[int], Tensor]  # of a layer, [N, D] float32
    type_N: Tensor  # number of the type (token id) of each row
    token_of: Mapping[int, str]  # how each type reads
    frequency_of: Mapping[int, int]  # occurrences of each type in all of the text
    facts: Mapping[str, Cell]  # what it was drawn from, for the record


def read_texts(
    subject: Subject, corpus: str, splits: Sequence[str], form: str, chunk: int, max_tokens: int
) -> Texts:
    """Drawn `chunks` of `chunk` tokens without CLS and SEP, or `sentences`, up to `max_tokens`."""
    source, tokenizer = subject.source, subject.encoder.tokenizer
    unknown = tokenizer.unk_token or UNKNOWN
    if form == "sentences" and corpus != "ptb":  # which has a sentence a line
        return _drawn_sentences(subject, read_corpus(source, corpus, splits, unknown), max_tokens)
    found = [row for split in splits for row in load_split(source, RUNNING[corpus], split)]
    stripped = (str(row["text"]).strip() for row in found)
    lines = [line.replace(UNKNOWN, unknown) for line in stripped if line]
    if form == "sentences":
        return _drawn_sentences(subject, list(dict.fromkeys(lines)), max_tokens)
    chunks_CT, n_left, count_V = cut_chunks(tokenizer, lines, chunk)
    at = hashed_order(len(chunks_CT), subject.seed)[: max(1, max_tokens // chunk)].numpy()
    return Texts([*chunks_CT[at]], None, len(chunks_CT), n_left, count_V)


def _drawn_sentences(subject: Subject, sentences: Sequence[str], max_tokens: int) -> Texts:
    """Tokenise and count all sentences in blocks; keep the ids of sampled ones."""
    ids: list[list[int]] = []
    special: list[list[int]] = []
    tokenizer = subject.encoder.tokenizer
    count_V = np.zeros(len(tokenizer), dtype=np.int64)
    n_cut, left, is_full = 0, max_tokens, False
    order = hashed_order(len(sentences), subject.seed).tolist()
    for start in range(0, len(order), CHUNK):
        some = [sentences[i] for i in order[start : start + CHUNK]]
        tokens = tokenise(tokenizer, some, subject.max_length)
        n_cut += tokens.n_cut
        found, marks = (np.concatenate([*map(np.asarray, x)]) for x in (tokens.ids, tokens.special))
        count_V += np.bincount(found[marks == 0].astype(np.int64), minlength=len(count_V))
        for own, own_special in zip(tokens.ids, tokens.special, strict=True):
            is_full = is_full or bool(ids and len(own) > left)
            if not is_full:
                ids.append(own)
                special.append(own_special)
                left -= len(own)
    return Texts(ids, special, len(sentences), n_cut, count_V)


def cut_chunks(
    tokenizer: Any, lines: Sequence[str], chunk: int
) -> tuple[np.ndarray, int, np.ndarray]:
    """Chunks `[C, T]` of the joined tokens of lines, the tokens left over, and counts `[V]`.

    Each line is tokenised as if after a space, so that its first word has its usual type. Cai et
    al. 2021, as in their released code.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> chunks, n_left, count = cut_chunks(build_tiny(8, 1, 1).tokenizer, ["a dog", "a b ."], 2)
    >>> chunks.shape, n_left, count.sum()
    ((2, 2), 1, np.int64(5))
    """
    parts = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(lines), CHUNK):
        some = [f" {line}" for line in lines[start : start + CHUNK]]
        found = tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]
        parts.append(np.array([token for ids in found for token in ids], dtype=np.int64))
    stream = np.concatenate(parts)
    n_chunks, n_left = divmod(len(stream), chunk)
    if n_chunks == 0:
        raise CannotRunError(
            f"a chunk needs {chunk} tokens, and the text has {len(stream)}; lower analysis.chunk, "
            "or set analysis.text=sentences"
        )
    chunks_CT = stream[: n_chunks * chunk].reshape(n_chunks, chunk)
    return chunks_CT, n_left, np.bincount(stream, minlength=len(tokenizer))


def sample_encoder(subject: Subject, texts: Texts, max_rows: int) -> Sample:
    """Up to `max_rows` tokens of the texts, sampled by hashing positions with the seed.

    Neither special tokens nor the unknown one. An encoder without blocks gives a type the same
    embedding everywhere, so there each type is drawn once.
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
    ids, segments = [[*map(int, own)] for own in texts.ids], [[0] * n for n in length]
    tokens = Tokens.none()._replace(ids=ids, segments=segments)
    types = np.unique(token[order]).tolist()
    layers = range(encoder.n_blocks + 1)
    return Sample(
        layers,
        layers[1:] or layers,
        lambda layer: torch.from_numpy(
            np.array(encode_rows(subject, "clusters", tokens, spans)[layer])
        ),
        torch.from_numpy(token[order]),
        {v: text_of(tokenizer, v) for v in types},
        {v: int(texts.count_V[v]) for v in types},
        {
            "n_texts": len(np.unique(place[order])),
            "n_texts_of": texts.n_of,
            "n_tokens": int(texts.count_V.sum()),
            "n_left": texts.n_left,
            "n_rows": len(order),
            "n_types": len(types),
        },
    )


def sample_vectors(vectors: Vectors, max_rows: int, seed: int) -> Sample:
    """Up to `max_rows` tokens of precomputed embeddings, sampled by hashing; types are texts."""
    number_of = {token: number for number, token in enumerate(dict.fromkeys(vectors.tokens))}
    type_of, names = np.array([number_of[token] for token in vectors.tokens]), [*number_of]
    at_N = hashed_order(len(vectors.tokens), seed)[:max_rows].numpy()
    types, count_V = np.unique(type_of[at_N]).tolist(), np.bincount(type_of)
    return Sample(
        vectors.layers,
        vectors.layers,
        lambda layer: torch.from_numpy(vectors.rows(layer, at_N)),
        torch.from_numpy(type_of[at_N]),
        {v: names[v] for v in types},
        {v: int(count_V[v]) for v in types},
        {
            "n_texts": vectors.n_sentences(at_N),
            "n_tokens": len(vectors.tokens),
            "n_rows": len(at_N),
            "n_types": len(types),
        },
    )


def text_of(tokenizer: Any, token: int) -> str:
    """A token as text, without the marks of its tokenizer."""
    piece = tokenizer.convert_ids_to_tokens(token)
    return str(tokenizer.convert_tokens_to_string([piece])).strip()


def is_symbol(text: str) -> bool:
    """Whether a token has no letter and no digit.

    >>> is_symbol(","), is_symbol("##s")
    (True, False)
    """
    return not any(map(str.isalnum, text))


def distinct_rows(x_ND: Tensor, type_N: Tensor) -> Tensor:
    """Ascending positions of the distinct embeddings of each type (by 1e-4 of their length).

    Equal ones (static vectors, the embedding output of a token at one position, the first token of
    a causal encoder) would be neighbours at distance zero.

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
    return first_R.scatter_reduce(0, run_N, order_N, "amin").sort().values
