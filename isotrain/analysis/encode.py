"""Tokens that are measured, and their embeddings at every layer, streamed to disk.

A sentences of a batch, T tokens, L blocks, D hidden, N spans or pairs, M tokens of spans.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from isotrain.analysis.data_sets import PAIR
from isotrain.analysis.types import Subject
from isotrain.encoders.trial import padded_batch
from isotrain.geometry.groups import hashed_order
from isotrain.tasks.data.sources import Source
from isotrain.tasks.wic import WiC
from isotrain.types import Row

CHUNK = 1024  # sentences tokenised at a time


class Tokens(NamedTuple):
    """Tokenised sentences, special tokens included."""

    ids: list[list[int]]
    special: list[list[int]]  # 1 = CLS, SEP
    segments: list[list[int]]  # token type ids, as in fine-tuning
    offsets: list[np.ndarray]  # [T, 2] characters of each token, the end excluded
    is_cut: list[bool]  # whether it was longer than `max_length`

    @property
    def n_cut(self) -> int:
        """Sentences that were longer than `max_length`."""
        return sum(self.is_cut)


class Spans(NamedTuple):
    """Token spans `start` to `stop` (exclusive) of sentences; an embedding is a span's mean."""

    sentence_N: np.ndarray
    start_N: np.ndarray
    stop_N: np.ndarray

    def __len__(self) -> int:
        return len(self.sentence_N)


def tokenise(tokenizer: Any, sentences: Sequence[str], max_length: int) -> Tokens:
    """Tokens of each sentence.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> tokens = tokenise(build_tiny(8, 1, 1).tokenizer, ["king xy"], 16)
    >>> tokens.special
    [[1, 0, 0, 0, 1]]
    """
    tokens = Tokens([], [], [], [], [])
    for start in range(0, len(sentences), CHUNK):
        encoded = tokenizer(
            list(sentences[start : start + CHUNK]),
            truncation=True,
            max_length=max_length,
            padding=False,
            return_token_type_ids=True,
            return_attention_mask=False,
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        tokens.ids.extend(encoded["input_ids"])
        tokens.special.extend(encoded["special_tokens_mask"])
        tokens.segments.extend(encoded["token_type_ids"])
        tokens.offsets.extend(
            np.array(spans, dtype=np.int32) for spans in encoded["offset_mapping"]
        )
        tokens.is_cut.extend(bool(encoding.overflowing) for encoding in encoded.encodings)
    return tokens


def whole_sentences(tokens: Tokens) -> Spans:
    """One span per sentence: all its tokens, including CLS and SEP (mean pooling)."""
    n_tokens = np.array([len(ids) for ids in tokens.ids], dtype=np.int64)
    return Spans(np.arange(len(n_tokens)), np.zeros_like(n_tokens), n_tokens)


def encode_rows(
    subject: Subject, tokens: Tokens, spans: Spans, layers: Sequence[int] | None = None
) -> np.ndarray:
    """Embeddings `[layers, N, D]` float32 of the spans, at each of the layers (None: all L + 1).

    Layer 0 is the embedding output, layer L the encoder output after its final norm. The array is
    memory-mapped to an unnamed file in the subject's folder, so memory does not grow with N. The
    file is deleted with the array. Only sentences with a span are encoded, the longest first. The
    batch size changes only rounding (1e-5 of the rms).

    Raises:
        ValueError: there is no span, or a span without a token.
    """
    if len(spans) == 0:
        raise ValueError("there are no rows to encode; give spans of at least one sentence")
    encoder = subject.encoder
    layers = list(range(encoder.n_blocks + 1)) if layers is None else list(layers)
    indices = np.unique(spans.sentence_N)
    lengths = np.array([len(tokens.ids[i]) for i in indices])
    order = indices[np.argsort(-lengths, kind="stable")]
    rows_LND = _on_disk(subject.folder, (len(layers), len(spans), encoder.width))
    by_sentence = np.argsort(spans.sentence_N, kind="stable")
    first = np.searchsorted(spans.sentence_N[by_sentence], np.arange(len(tokens.ids) + 1))
    for start in range(0, len(order), subject.batch_size):
        sentences = order[start : start + subject.batch_size]
        inputs = ([part[i] for i in sentences] for part in (tokens.ids, tokens.segments))
        states = hidden_states(subject, *inputs)
        row_N = np.concatenate([by_sentence[first[i] : first[i + 1]] for i in sentences])
        at_N = np.repeat(np.arange(len(sentences)), first[sentences + 1] - first[sentences])
        for k, layer in enumerate(layers):
            mean_ND = span_means(states[layer], at_N, spans.start_N[row_N], spans.stop_N[row_N])
            rows_LND[k, row_N] = mean_ND.float().cpu().numpy()
    return rows_LND


def _on_disk(folder: Path, shape: tuple[int, ...]) -> np.memmap:
    """A float32 array in an unnamed temporary file, deleted with the array."""
    with TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # a write to a map on a full disk kills the process
            os.posix_fallocate(file.fileno(), 0, 4 * math.prod(shape))
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)


def hidden_states(
    subject: Subject,
    ids: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None = None,
) -> tuple[Tensor, ...]:
    """L + 1 hidden states `[A, T, D]` of padded sentences, the last one after any final norm."""
    encoder = subject.encoder
    device = next(iter(encoder.parameters()), torch.zeros(0)).device
    batch = padded_batch(ids, encoder.tokenizer.pad_token_id or 0, segments).to(device)
    with torch.inference_mode():
        output = encoder(batch, {})
    return (*output.hidden_states[:-1], output.last)


def span_means(
    states_ATD: Tensor, at_N: np.ndarray, start_N: np.ndarray, stop_N: np.ndarray
) -> Tensor:
    """Means `[N, D]` over the tokens start to stop of sentence `at` of a batch.

    >>> states = torch.tensor([[[1.0], [3.0], [8.0]]])
    >>> span_means(states, *(np.array([k, k]) for k in (0,)), np.array([0, 2]), np.array([2, 3]))
    tensor([[2.],
            [8.]])
    """
    n_tokens_N = stop_N - start_N
    if (n_tokens_N < 1).any():
        raise ValueError("a span must have a token: start below stop")
    _, length, width = states_ATD.shape
    first_N = np.cumsum(n_tokens_N) - n_tokens_N  # of all tokens of spans
    offset_N = at_N * length + start_N - first_N
    token_M = torch.from_numpy(np.arange(n_tokens_N.sum()) + np.repeat(offset_N, n_tokens_N))
    flat, first = states_ATD.reshape(-1, width), torch.from_numpy(first_N)
    return embedding_bag(token_M.to(flat.device), flat, first.to(flat.device), mode="mean")


T = TypeVar("T")


def subsample(items: Sequence[T], most: int | None, seed: int) -> list[T]:
    """Subsample by hashing positions with the seed; the original order is kept.

    >>> len(subsample("abcdefgh", 3, seed=0)), subsample("ab", None, seed=0)
    (3, ['a', 'b'])
    """
    if most is None or len(items) <= most:
        return list(items)
    return [items[i] for i in sorted(hashed_order(len(items), seed)[:most].tolist())]


class Sample(NamedTuple):
    """Spans in tokenised sentences, with the word index and sentence index of each."""

    tokens: Tokens
    spans: Spans
    word_N: Tensor
    sentence_N: Tensor


SPACE = "▁"  # SentencePiece's mark of a new word, alone in a piece


class Words:
    """The tokens of a sentence that count as words; special and unknown ones never do.

    Each piece of the tokenizer is a word, as in Ethayarajh (2019). Without `punctuation`, it must
    have a letter or a digit.
    """

    def __init__(self, tokenizer: Any, punctuation: bool) -> None:
        self.tokenizer, self.punctuation = tokenizer, punctuation
        self.no_words = set(tokenizer.all_special_ids)
        self.space = tokenizer.get_vocab().get(SPACE)  # has the offsets of the piece after it

    def of(self, tokens: Tokens, i: int, sentence: str) -> list[int]:
        """Positions of the words of sentence i."""
        return [
            t
            for t, token in enumerate(tokens.ids[i])
            if not tokens.special[i][t]
            and token not in self.no_words
            and (
                self.punctuation
                or (
                    token != self.space
                    and any(map(str.isalnum, sentence[slice(*tokens.offsets[i][t])]))
                )
            )
        ]

    def ids_of(self, word: str) -> tuple[set[int], str]:
        """Ids of a word at the start of a text and after a space; or why it has none."""
        pieces = self.tokenizer([word, f" {word}"], add_special_tokens=False)["input_ids"]
        if any(not self.no_words.isdisjoint(ids) for ids in pieces):
            return set(), "unknown to this tokenizer"
        single = {ids[0] for ids in pieces if len(ids) == 1}
        return single, "" if single else f"{min(map(len, pieces))} pieces"


def draw_sentences(
    sentences: Sequence[str], words: Words, max_length: int, seed: int, max_rows: int
) -> Sample:
    """The words of whole sentences, sampled by hashing their positions with the seed.

    Sentences are added until the next one would exceed `max_rows` words. Longer ones before the
    first are skipped. Of sentences with equal tokens, the first one drawn counts.
    """
    sample_tokens = Tokens([], [], [], [], [])
    occurrences: list[tuple[int, int]] = []  # sentence and position
    for tokens, i, text in _shuffled(sentences, words.tokenizer, max_length, seed):
        positions = words.of(tokens, i, text)
        if len(occurrences) + len(positions) > max_rows:
            if occurrences:
                break
            continue
        _add(sample_tokens, tokens, i)
        occurrences += [(len(sample_tokens.ids) - 1, t) for t in positions]
    if not occurrences:
        raise ValueError(f"no sentence of the corpus has 1 to {max_rows} words; raise max_rows")
    number_of: dict[int, int] = {}
    word_N = [number_of.setdefault(sample_tokens.ids[i][t], len(number_of)) for i, t in occurrences]
    spans = _single_tokens(occurrences)
    return Sample(sample_tokens, spans, torch.tensor(word_N), torch.from_numpy(spans.sentence_N))


def draw_occurrences(
    sentences: Sequence[str],
    words: Words,
    max_length: int,
    seed: int,
    ids_of: Mapping[str, Set[int]],
    most: int,
) -> tuple[Tokens, dict[str, Spans]]:
    """Up to `most` positions of each word, in sentences drawn as by `draw_sentences`."""
    sample_tokens = Tokens([], [], [], [], [])
    occurrences: dict[str, list[tuple[int, int]]] = {word: [] for word in ids_of}
    open_words = set(ids_of)
    for tokens, i, text in _shuffled(sentences, words.tokenizer, max_length, seed):
        positions = words.of(tokens, i, text)
        hits = {word: [t for t in positions if tokens.ids[i][t] in ids_of[word]] for word in ids_of}
        if any(hits[word] for word in open_words):
            _add(sample_tokens, tokens, i)
            for word in open_words:
                occurrences[word] += [(len(sample_tokens.ids) - 1, t) for t in hits[word]]
            open_words = {word for word in open_words if len(occurrences[word]) < most}
        if not open_words:
            break
    return sample_tokens, {
        word: _single_tokens(pairs[:most]) for word, pairs in occurrences.items()
    }


class Targets(NamedTuple):
    """Pairs with both targets kept: entries 2k and 2k + 1 of `spans` belong to pair k."""

    tokens: Tokens
    spans: Spans
    pair_N: np.ndarray  # indices of the pairs among the given examples
    n_left_out: int  # pairs with a truncated target


def wic_pairs(source: Source, split: str, most: int | None, seed: int) -> list[Row]:
    """The labelled pairs of a split, or `most` of them, sampled by a hash of the seed."""
    return subsample(WiC().rows_of(source, split), most, seed)


def find_targets(rows: Sequence[Row], tokenizer: Any, max_length: int) -> Targets:
    """Token spans of both targets of each pair: all tokens that overlap [start, end).

    A pair with a target beyond `max_length` tokens is left out and counted.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> row = {"sentence1": "the dog", "start1": 4, "end1": 7}
    >>> row |= {"sentence2": "a dog", "start2": 2, "end2": 5}
    >>> found = find_targets([row], build_tiny(8, 1, 1).tokenizer, 16)
    >>> found.spans.sentence_N.tolist(), found.spans.start_N.tolist(), found.n_left_out
    ([0, 1], [2, 2], 0)
    """
    tokens = tokenise(tokenizer, [str(row[side]) for row in rows for side in PAIR], max_length)
    spans = [
        overlapping(tokens, 2 * k + side, int(row[f"start{side + 1}"]), int(row[f"end{side + 1}"]))
        for k, row in enumerate(rows)
        for side in (0, 1)
    ]
    pair_ids = [k for k in range(len(rows)) if spans[2 * k] and spans[2 * k + 1]]
    targets = [spans[2 * k + side] for k in pair_ids for side in (0, 1)]
    target_spans = Spans(*np.array(targets, dtype=np.int64).reshape(-1, 3).T)
    return Targets(
        tokens, target_spans, np.array(pair_ids, dtype=np.int64), len(rows) - len(pair_ids)
    )


def overlapping(tokens: Tokens, i: int, begin: int, end: int) -> tuple[int, int, int] | None:
    """Span of the tokens of sentence i that overlap characters [begin, end).

    None without any, or if `max_length` cut characters off.
    """
    if tokens.is_cut[i] and end > int(tokens.offsets[i].max(initial=0)):
        return None
    inside = [
        t
        for t, (start, stop) in enumerate(tokens.offsets[i])
        if not tokens.special[i][t] and start < end and stop > begin
    ]
    return (i, inside[0], inside[-1] + 1) if inside else None


def _shuffled(
    sentences: Sequence[str], tokenizer: Any, max_length: int, seed: int
) -> Iterator[tuple[Tokens, int, str]]:
    """Sentences of distinct tokens, shuffled by the seed; a few are held at a time."""
    seen: set[bytes] = set()
    order = hashed_order(len(sentences), seed).tolist()
    for start in range(0, len(order), CHUNK):
        texts = [sentences[k] for k in order[start : start + CHUNK]]
        tokens = tokenise(tokenizer, texts, max_length)
        for i, text in enumerate(texts):
            key = np.array(tokens.ids[i], dtype=np.int32).tobytes()
            if key not in seen:
                seen.add(key)
                yield tokens, i, text


def _add(subset: Tokens, tokens: Tokens, i: int) -> None:
    """Append sentence i of `tokens` to `subset`."""
    fields: Iterable[tuple[list[Any], list[Any]]] = zip(subset, tokens, strict=True)
    for target, source in fields:
        target.append(source[i])


def _single_tokens(positions: Sequence[tuple[int, int]]) -> Spans:
    """A one-token span for each (sentence, position)."""
    sentence_N, start_N = np.array(positions, dtype=np.int64).reshape(-1, 2).T
    return Spans(sentence_N, start_N, start_N + 1)
