"""Encode sentences: mean embeddings of token spans at every layer, streamed to disk.

A sentences of a batch, T tokens, L blocks, D hidden, N spans (rows), M tokens of spans.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.types import Subject
from isotrain.runs.files import replace_text
from isotrain.types import Batch

FLUSH_S = 5.0  # between two notes of how far the rows on disk are
CHUNK = 1024  # sentences that are tokenised at a time


class Tokens(NamedTuple):
    """Tokenised sentences or pairs, special tokens included."""

    ids: list[list[int]]
    special: list[list[int]]  # 1 = CLS, SEP
    segments: list[list[int]]  # token type ids, as in fine-tuning
    sides: list[list[int | None]]  # which text of a pair each token is of; None for special tokens
    words: list[list[int | None]]  # number of the word of each token; None for special tokens
    offsets: list[np.ndarray]  # [T, 2] characters of each token, the end excluded
    is_cut: list[bool]  # whether it was longer than `max_length`

    @classmethod
    def none(cls) -> Tokens:
        """No sentence yet."""
        return cls([], [], [], [], [], [], [])

    @property
    def n_cut(self) -> int:
        """Sentences or pairs that were longer than `max_length`."""
        return sum(self.is_cut)


class Spans(NamedTuple):
    """Token spans `start` to `stop` (exclusive) of sentences; an embedding is a span's mean."""

    sentence_N: np.ndarray
    start_N: np.ndarray
    stop_N: np.ndarray

    def __len__(self) -> int:
        return len(self.sentence_N)


def tokenise(
    tokenizer: Any,
    sentences: Sequence[str],
    max_length: int,
    second: Sequence[str] | None = None,
) -> Tokens:
    """Tokens of each sentence, or of each pair of it with `second`, as one sequence.

    The longer sentence of a pair is cut first.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> tokenizer = build_tiny(8, 1, 1).tokenizer
    >>> tokens = tokenise(tokenizer, ["king xy"], 16)
    >>> tokens.special, tokens.words
    ([[1, 0, 0, 0, 1]], [[None, 0, 1, 1, None]])
    >>> tokenise(tokenizer, ["the"], 9, ["the"]).sides
    [[None, 0, None, 1, None]]
    """
    columns = [sentences] if second is None else [sentences, second]
    found = Tokens.none()
    for start in range(0, len(sentences), CHUNK):
        encoded = tokenizer(
            *(list(column[start : start + CHUNK]) for column in columns),
            truncation=True,
            max_length=max_length,
            padding=False,
            return_token_type_ids=True,
            return_attention_mask=False,
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        found.ids.extend(encoded["input_ids"])
        found.special.extend(encoded["special_tokens_mask"])
        found.segments.extend(encoded["token_type_ids"])
        found.offsets.extend(np.array(own, dtype=np.int32) for own in encoded["offset_mapping"])
        for encoding in encoded.encodings:
            found.sides.append(encoding.sequence_ids)
            found.words.append(encoding.word_ids)
            found.is_cut.append(bool(encoding.overflowing))
    return found


def whole_sentences(tokens: Tokens) -> Spans:
    """One span per sentence: all its tokens, including CLS and SEP (mean pooling)."""
    n_tokens = np.array([len(ids) for ids in tokens.ids], dtype=np.int64)
    return Spans(np.arange(len(n_tokens)), np.zeros_like(n_tokens), n_tokens)


def encode_rows(
    subject: Subject,
    name: str,
    tokens: Tokens,
    spans: Spans,
    layers: Sequence[int] | None = None,
) -> np.ndarray:
    """Embeddings `[layers, N, D]` float32 of the spans, at each of the layers (None: all L + 1).

    Layer 0 is the embedding output, L what leaves the encoder, its final norm included. The array
    is mapped to the file `<folder>/<name>.npy`, so that memory does not grow with N. Only
    sentences with a span are encoded, the longest first. A stopped attempt resumes at its batch;
    a file of other spans is rewritten. The batch size changes only rounding (1e-5 of the rms).

    Raises:
        ValueError: there is no span, or a span without a token.
    """
    if len(spans) == 0:
        raise ValueError(f"{name} has no rows; give it spans of at least one sentence")
    encoder = subject.encoder
    layers = list(range(encoder.n_blocks + 1)) if layers is None else list(layers)
    used = np.unique(spans.sentence_N)
    lengths = np.array([len(tokens.ids[i]) for i in used])
    order = used[np.argsort(-lengths, kind="stable")]
    batches = [order[i : i + subject.batch_size] for i in range(0, len(order), subject.batch_size)]
    path = subject.folder / f"{name}.npy"
    content = _content(tokens, spans, layers, order, subject.batch_size)
    rows_LND, n_done = _opened(path, (len(layers), len(spans), encoder.width), content)
    by_sentence = np.argsort(spans.sentence_N, kind="stable")
    first = np.searchsorted(spans.sentence_N[by_sentence], np.arange(len(tokens.ids) + 1))
    noted_at = time.monotonic()
    for number, sentences in enumerate(batches[n_done:], start=n_done + 1):
        own = ([part[i] for i in sentences] for part in (tokens.ids, tokens.segments))
        states = hidden_states(subject, *own)
        row_N = np.concatenate([by_sentence[first[i] : first[i + 1]] for i in sentences])
        at_N = np.repeat(np.arange(len(sentences)), first[sentences + 1] - first[sentences])
        for k, layer in enumerate(layers):
            found_ND = span_means(states[layer], at_N, spans.start_N[row_N], spans.stop_N[row_N])
            rows_LND[k, row_N] = found_ND.float().cpu().numpy()
        if time.monotonic() > noted_at + FLUSH_S or number == len(batches):
            rows_LND.flush()
            replace_text(_note(path), f"{number} {content}")
            noted_at = time.monotonic()
        subject.tell(f"{name}: {number:,} of {len(batches):,} batches encoded")
    return rows_LND


def drop_rows(subject: Subject, name: str) -> None:
    """Remove the files of `encode_rows` under a name, if any."""
    path = subject.folder / f"{name}.npy"
    path.unlink(missing_ok=True)
    _note(path).unlink(missing_ok=True)


def hidden_states(
    subject: Subject,
    ids: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None = None,
) -> tuple[Tensor, ...]:
    """L + 1 hidden states `[A, T, D]` of padded sentences, the last one after any final norm."""
    encoder = subject.encoder
    device = next(iter(encoder.parameters()), torch.zeros(0)).device
    batch = padded(ids, encoder.tokenizer.pad_token_id or 0, segments).to(device)
    with torch.inference_mode():
        output = encoder(batch, {})
    return (*output.hidden_states[:-1], output.last)


def padded(
    ids: Sequence[Sequence[int]], pad: int, segments: Sequence[Sequence[int]] | None = None
) -> Batch:
    """A batch of sentences without labels; segments are 0 if None."""
    length = max(map(len, ids))
    input_AT = torch.full((len(ids), length), pad, dtype=torch.long)
    mask_AT, segment_AT = torch.zeros_like(input_AT), torch.zeros_like(input_AT)
    for a, own in enumerate(ids):
        input_AT[a, : len(own)] = torch.tensor(own)
        mask_AT[a, : len(own)] = 1
        if segments is not None:
            segment_AT[a, : len(own)] = torch.tensor(segments[a])
    none = torch.zeros(len(ids), dtype=torch.long)
    return Batch(input_AT, mask_AT, segment_AT, torch.zeros_like(input_AT), none, none)


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
    n, (_, length, width) = len(at_N), states_ATD.shape
    first_N = at_N * length + start_N
    row_M = np.repeat(np.arange(n), n_tokens_N)
    within_M = np.arange(len(row_M)) - np.repeat(np.cumsum(n_tokens_N) - n_tokens_N, n_tokens_N)
    token_M = torch.from_numpy(np.repeat(first_N, n_tokens_N) + within_M)
    flat = states_ATD.reshape(-1, width)
    token_MD = flat[token_M.to(flat.device)]
    if len(row_M) == n:
        return token_MD
    sums_ND = torch.zeros(n, width, dtype=flat.dtype, device=flat.device)
    sums_ND.index_add_(0, torch.from_numpy(row_M).to(flat.device), token_MD)
    counts_N1 = torch.from_numpy(n_tokens_N).to(flat.device, flat.dtype)[:, None]
    return sums_ND / counts_N1


def _content(
    tokens: Tokens, spans: Spans, layers: Sequence[int], order: np.ndarray, batch_size: int
) -> str:
    """Digest of the embeddings of a file and their encoding batches."""
    digest = hashlib.sha256(repr((list(layers), batch_size)).encode())
    for part in (order, spans.sentence_N, spans.start_N, spans.stop_N):
        digest.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
    for i in order:
        digest.update(np.array(tokens.ids[i], dtype=np.int64).tobytes())
    return digest.hexdigest()


def _opened(path: Path, shape: tuple[int, ...], content: str) -> tuple[np.memmap, int]:
    """The array of a file, and the number of completed batches of that content."""
    note = _note(path)
    if path.is_file() and note.is_file():
        done, _, found = note.read_text(encoding="utf-8").partition(" ")
        if found == content:
            return np.lib.format.open_memmap(path, mode="r+"), int(done)
    path.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    _allocate(path)
    return rows, 0


def _allocate(path: Path) -> None:
    """Fill a sparse file: on a full disk, writing to a map kills the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    size = path.stat().st_size
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink()
        raise OSError(
            error.errno,
            f"rows need {size / 1e6:,.0f} MB in {path.parent} while they are measured "
            f"({error.strerror}); free them, or give another place with output_dir=..., or fewer "
            "rows with analysis.max_rows=...",
        ) from error


def _note(path: Path) -> Path:
    return path.with_suffix(".done")
