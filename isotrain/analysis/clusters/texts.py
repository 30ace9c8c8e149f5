"""Texts of the clusters analysis as token ids: chunks of running text, or sentences.

C chunks, T tokens of a chunk, V token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isotrain.analysis.corpora import TEXTS, data_set_of, missing, read_corpus
from isotrain.analysis.encode import tokenise
from isotrain.geometry.groups import hashed_order
from isotrain.runs.record import CannotRunError
from isotrain.tasks import text
from isotrain.tasks.data.sources import DataSet, LocalSource, Source, load_split
from isotrain.tasks.text import UNKNOWN

PTB = DataSet(
    name="ptb",
    fields={"text": str},
    target="",
    hub_id="",
    hub_config=None,
    hub_revision="",
    folders=("penn", "PTB"),
    files=("{}.txt", "ptb.{}.txt"),
    needs=("train",),
)
RUNNING = {"wikitext-2": text.DATA, "ptb": PTB}  # corpora that chunks can be cut of
LINES = 1024  # that are tokenised at a time


class Texts(NamedTuple):
    """Drawn chunks or sentences as token ids, and the tokens of each that may be measured."""

    ids: Sequence[Sequence[int]]
    special: Sequence[Sequence[int]] | None  # 1 = CLS, SEP; None: there are none
    n_of: int  # chunks or sentences that they were drawn from
    n_left: int  # tokens behind the last whole chunk, or sentences that were cut
    count_V: np.ndarray  # occurrences of each token id in all of the corpus


def corpus_data_set(corpus: str) -> DataSet:
    """The data set of a corpus, `ptb` among them.

    Raises:
        ValueError: there is no such corpus.
    """
    if corpus not in TEXTS and corpus not in RUNNING:
        raise ValueError(f"there is no corpus {corpus}; there are {', '.join([*TEXTS, 'ptb'])}")
    return RUNNING[corpus] if corpus in RUNNING else data_set_of(corpus)


def missing_corpus(source: Source, corpus: str) -> list[str]:
    """What the source lacks of a corpus, with the ways out."""
    if corpus == "ptb" and not isinstance(source, LocalSource):
        return [
            "the Penn Treebank is licensed, so no source but your own folder has it: put "
            "ptb/train.txt (one sentence a line) into ISOTRAIN_DATA_DIR and use source=local, or "
            "use analysis.corpus=wikitext-2"
        ]
    return missing(source, [corpus_data_set(corpus)])


def read_texts(
    source: Source,
    corpus: str,
    splits: Sequence[str],
    tokenizer: Any,
    form: str,
    chunk: int,
    max_length: int,
    max_tokens: int,
    seed: int,
) -> Texts:
    """Texts of some splits: `chunks` of `chunk` tokens, or `sentences` up to `max_length`.

    They are drawn by hashing places with the seed, until the next one would exceed `max_tokens`;
    at least one. Chunks have no CLS and no SEP. Sentences have what the tokenizer adds, marked as
    special.

    Raises:
        CannotRunError: a ValueError: no text, or fewer tokens than a chunk.
    """
    unknown = tokenizer.unk_token or UNKNOWN
    lines = []
    if corpus in RUNNING:
        found = [row for split in splits for row in load_split(source, RUNNING[corpus], split)]
        lines = [stripped for row in found if (stripped := str(row["text"]).strip())]
    if form == "chunks":
        chunks_CT, n_left, count_V = cut_chunks(
            tokenizer, [line.replace(UNKNOWN, unknown) for line in lines], chunk
        )
        drawn = hashed_order(len(chunks_CT), seed)[: max(1, max_tokens // chunk)].numpy()
        return Texts([*chunks_CT[drawn]], None, len(chunks_CT), n_left, count_V)
    if corpus == "ptb":
        sentences = [*dict.fromkeys(line.replace(UNKNOWN, unknown) for line in lines)]
    else:
        sentences = read_corpus(source, corpus, splits, unknown)
    return _drawn_sentences(tokenizer, sentences, max_length, max_tokens, seed)


def _drawn_sentences(
    tokenizer: Any, sentences: Sequence[str], max_length: int, max_tokens: int, seed: int
) -> Texts:
    """All sentences are tokenised, some at a time, and counted; the ids of drawn ones are kept."""
    ids: list[list[int]] = []
    special: list[list[int]] = []
    count_V = np.zeros(len(tokenizer), dtype=np.int64)
    n_cut, left, is_full = 0, max_tokens, False
    order = hashed_order(len(sentences), seed).tolist()
    for start in range(0, len(order), LINES):
        some = [sentences[i] for i in order[start : start + LINES]]
        tokens = tokenise(tokenizer, some, max_length)
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

    Each line begins as after a space, so that its first word is the type it is elsewhere. No
    special token is added. What is behind the last whole chunk is left out.

    Raises:
        CannotRunError: a ValueError: fewer tokens than a chunk.

    Cai et al. 2021, as their released code cuts text.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> chunks, n_left, count = cut_chunks(build_tiny(8, 1, 1).tokenizer, ["a dog", "a b ."], 2)
    >>> chunks.shape, n_left, count.sum()
    ((2, 2), 1, np.int64(5))
    """
    parts = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(lines), LINES):
        some = [f" {line}" for line in lines[start : start + LINES]]
        found = tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]
        parts.append(np.array([token for ids in found for token in ids], dtype=np.int64))
    stream = np.concatenate(parts)
    n_chunks = len(stream) // chunk
    if n_chunks == 0:
        raise CannotRunError(
            f"a chunk needs {chunk} tokens, and the text has {len(stream)}; lower analysis.chunk, "
            "or set analysis.text=sentences"
        )
    chunks_CT = stream[: n_chunks * chunk].reshape(n_chunks, chunk)
    counts_V = np.bincount(stream, minlength=len(tokenizer))
    return chunks_CT, len(stream) - n_chunks * chunk, counts_V
