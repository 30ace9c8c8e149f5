"""Tokens or words that are measured: drawn by whole sentences, or the occurrences of some words.

N rows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.encode import CHUNK, Spans, Tokens, tokenise
from isotrain.geometry.groups import hashed_order

Unit = Literal["piece", "word"]
Key = tuple[int, ...]
"""A word: the ids of its pieces, one where pieces are the unit."""


class Sample(NamedTuple):
    """Rows within tokenised sentences, and the number of the word and of the sentence of each."""

    tokens: Tokens
    spans: Spans
    word_N: Tensor
    sentence_N: Tensor


class Units:
    """What counts as a word of a tokenised sentence.

    Special tokens and unknown words never do, and where `punctuation` is false nothing without a
    letter or a digit.

    Args:
        tokenizer: a fast one.
        unit: `piece` is each token of the tokenizer, as Ethayarajh (2019) has it; `word` what
            stands between spaces and punctuation, whose row is the mean of its pieces.
        punctuation: whether `.` is a word.
    """

    def __init__(self, tokenizer: Any, unit: Unit, punctuation: bool) -> None:
        self.tokenizer, self.unit, self.punctuation = tokenizer, unit, punctuation
        self.no_words = set(tokenizer.all_special_ids)

    def of(self, tokens: Tokens, i: int, sentence: str) -> Iterator[tuple[int, int, Key]]:
        """First token, end (excluded) and key of each word of sentence i."""
        ids, numbers, n = tokens.ids[i], tokens.words[i], len(tokens.ids[i])
        start = 0
        while start < n:
            stop = start + 1
            if self.unit == "word" and numbers[start] is not None:
                while stop < n and numbers[stop] == numbers[start]:
                    stop += 1
            key = tuple(ids[start:stop])
            first, last = tokens.offsets[i][start][0], tokens.offsets[i][stop - 1][1]
            is_written = self.punctuation or any(map(str.isalnum, sentence[first:last]))
            if not tokens.special[i][start] and is_written and self.no_words.isdisjoint(key):
                yield start, stop, key
            start = stop

    def keys_of(self, word: str) -> tuple[set[Key], str]:
        """The keys of a word at the start of a text and behind a space; or why it has none."""
        found: set[Key] = {
            tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
            for text in (word, f" {word}")
        }
        if any(not self.no_words.isdisjoint(key) for key in found):
            return set(), "unknown to this tokenizer"
        if self.unit == "word":
            return found, ""
        single: set[Key] = {key for key in found if len(key) == 1}
        n_pieces = min(map(len, found))
        return single, "" if single else f"{n_pieces} pieces; analysis.unit=word follows it"


def draw_sentences(
    sentences: Sequence[str], units: Units, max_length: int, seed: int, max_rows: int
) -> Sample:
    """The words of whole sentences, drawn by hashing their places with the seed.

    Sentences are taken until the words of the next one would exceed `max_rows` (those that are too
    long by themselves are passed over before the first); of sentences that are equal to the
    tokenizer (`A dog.` and `a dog.`) the first drawn.

    Raises:
        ValueError: not one sentence has few enough words and more than none.
    """
    kept = Tokens([], [], [], [], 0)
    rows: list[tuple[int, int, int, Key]] = []
    for tokens, i, text in _tokenised(_drawn(sentences, seed), units.tokenizer, max_length):
        own = [*units.of(tokens, i, text)]
        if len(rows) + len(own) > max_rows:
            if rows:
                break
            continue
        kept = _add(kept, tokens, i)
        rows += [(len(kept.ids) - 1, *found) for found in own]
    if not rows:
        raise ValueError(f"no sentence of the corpus has 1 to {max_rows} words; raise max_rows")
    return _sample(kept, rows)


def draw_occurrences(
    sentences: Sequence[str],
    units: Units,
    max_length: int,
    seed: int,
    words: Mapping[str, Set[Key]],
    most: int,
) -> tuple[Tokens, dict[str, Spans]]:
    """Where each word stands, `most` times at most, in sentences drawn as by `draw_sentences`.

    The places of a word are the same whichever other words are followed.
    """
    kept = Tokens([], [], [], [], 0)
    found: dict[str, list[tuple[int, int, int]]] = {word: [] for word in words}
    wanted = {word: _plain(word) for word in words}

    def may_have_one(text: str) -> bool:
        plain = _plain(text) if wanted else ""
        return any(word in plain for word in wanted.values())

    might = filter(may_have_one, _drawn(sentences, seed))
    for tokens, i, text in _tokenised(might, units.tokenizer, max_length):
        own = [*units.of(tokens, i, text)]
        at = {w: [(s, e) for s, e, key in own if key in words[w]] for w in wanted}
        if any(at.values()):
            kept = _add(kept, tokens, i)
            for word, places in at.items():
                found[word] += [(len(kept.ids) - 1, *place) for place in places]
                if len(found[word]) >= most:
                    del wanted[word]
        if not wanted:
            break
    return kept, {word: _spans(places[:most]) for word, places in found.items()}


def _drawn(sentences: Sequence[str], seed: int) -> Iterator[str]:
    """The sentences in the order of the seed."""
    return (sentences[i] for i in hashed_order(len(sentences), seed).tolist())


def _tokenised(
    texts: Iterable[str], tokenizer: Any, max_length: int
) -> Iterator[tuple[Tokens, int, str]]:
    """Each of several equal sentences once, tokenised, in their order; few are held at a time."""
    seen: set[bytes] = set()
    rest = iter(texts)
    while some := list(islice(rest, CHUNK)):
        tokens = tokenise(tokenizer, some, max_length)
        for i, text in enumerate(some):
            key = np.array(tokens.ids[i], dtype=np.int32).tobytes()
            if key not in seen:
                seen.add(key)
                yield tokens, i, text


def _add(kept: Tokens, tokens: Tokens, i: int) -> Tokens:
    """`kept` with sentence i of `tokens` behind it."""
    kept.ids.append(tokens.ids[i])
    kept.special.append(tokens.special[i])
    kept.words.append(tokens.words[i])
    kept.offsets.append(tokens.offsets[i])
    return kept._replace(n_cut=kept.n_cut + tokens.is_cut[i])


def _sample(tokens: Tokens, rows: Sequence[tuple[int, int, int, Key]]) -> Sample:
    number_of: dict[Key, int] = {}
    words = [number_of.setdefault(key, len(number_of)) for *_, key in rows]
    spans = _spans([row[:3] for row in rows])
    return Sample(tokens, spans, torch.tensor(words), torch.from_numpy(spans.sentence_N))


def _spans(places: Sequence[tuple[int, int, int]]) -> Spans:
    return Spans(*np.array(places, dtype=np.int64).reshape(-1, 3).T)


def _plain(text: str) -> str:
    """A text without case and accents: no tokenizer tells more words apart by its spelling."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()
