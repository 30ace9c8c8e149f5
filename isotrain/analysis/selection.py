"""Units measured in texts: words, word occurrences, pairs as one sequence, WiC targets.

N rows (tokens or words) or pairs, A sequences, T tokens.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.data_sets import PAIR
from isotrain.analysis.encode import CHUNK, Spans, Tokens, tokenise
from isotrain.geometry.groups import hashed_order
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import Source
from isotrain.tasks.wic import WiC
from isotrain.types import Row

T = TypeVar("T")
Unit = Literal["piece", "word"]
Key = tuple[int, ...]
"""A word: the ids of its pieces, one where pieces are the unit."""


def drawn(given: Sequence[T], most: int | None, seed: int) -> list[T]:
    """Subsample by hashing positions with the seed; the original order is kept.

    >>> len(drawn("abcdefgh", 3, seed=0)), drawn("ab", None, seed=0)
    (3, ['a', 'b'])
    """
    if most is None or len(given) <= most:
        return list(given)
    return [given[i] for i in sorted(hashed_order(len(given), seed)[:most].tolist())]


class Sample(NamedTuple):
    """Spans in tokenised sentences, with the word index and sentence index of each."""

    tokens: Tokens
    spans: Spans
    word_N: Tensor
    sentence_N: Tensor


class Units:
    """What counts as a word of a tokenised sentence; special and unknown tokens never count.

    A `piece` is a token of the tokenizer, as in Ethayarajh (2019); a `word` is delimited by
    spaces and punctuation, and its embedding is the mean of its pieces. Without `punctuation`, a
    word must contain a letter or a digit.
    """

    def __init__(self, tokenizer: Any, unit: Unit, punctuation: bool) -> None:
        self.tokenizer, self.unit, self.punctuation = tokenizer, unit, punctuation
        self.no_words = set(tokenizer.all_special_ids)

    def of(self, tokens: Tokens, i: int, sentence: str) -> Iterator[tuple[int, int, Key]]:
        """First token, end (exclusive) and key of each word of sentence i."""
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
        """The keys of a word at the start of a text and after a space; or why it has none."""
        texts = [word, f" {word}"]
        found: set[Key] = {
            *map(tuple, self.tokenizer(texts, add_special_tokens=False)["input_ids"])
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
    """The words of whole sentences, sampled by hashing their positions with the seed.

    Sentences are added until the next one would exceed `max_rows` words (before the first, ones
    that are too long are skipped). Of sentences with equal tokens, the first one drawn counts.
    """
    kept = Tokens.none()
    rows: list[tuple[int, int, int, Key]] = []
    for tokens, i, text in _tokenised(_in_order(sentences, seed), units.tokenizer, max_length):
        own = [*units.of(tokens, i, text)]
        if len(rows) + len(own) > max_rows:
            if rows:
                break
            continue
        _add(kept, tokens, i)
        rows += [(len(kept.ids) - 1, *found) for found in own]
    if not rows:
        raise ValueError(f"no sentence of the corpus has 1 to {max_rows} words; raise max_rows")
    number_of: dict[Key, int] = {}
    words = [number_of.setdefault(key, len(number_of)) for *_, key in rows]
    spans = _spans([row[:3] for row in rows])
    return Sample(kept, spans, torch.tensor(words), torch.from_numpy(spans.sentence_N))


def draw_occurrences(
    sentences: Sequence[str],
    units: Units,
    max_length: int,
    seed: int,
    words: Mapping[str, Set[Key]],
    most: int,
) -> tuple[Tokens, dict[str, Spans]]:
    """Up to `most` positions of each word, in sentences drawn as by `draw_sentences`."""
    kept = Tokens.none()
    found: dict[str, list[tuple[int, int, int]]] = {word: [] for word in words}
    wanted = {word: _plain(word) for word in words}

    def may_have_one(text: str) -> bool:
        plain = _plain(text) if wanted else ""
        return any(word in plain for word in wanted.values())

    might = filter(may_have_one, _in_order(sentences, seed))
    for tokens, i, text in _tokenised(might, units.tokenizer, max_length):
        own = [*units.of(tokens, i, text)]
        at = {w: [(s, e) for s, e, key in own if key in words[w]] for w in wanted}
        if any(at.values()):
            _add(kept, tokens, i)
            for word, places in at.items():
                found[word] += [(len(kept.ids) - 1, *place) for place in places]
                if len(found[word]) >= most:
                    del wanted[word]
        if not wanted:
            break
    return kept, {word: _spans(places[:most]) for word, places in found.items()}


class Targets(NamedTuple):
    """Pairs with both targets kept: entries 2k and 2k + 1 of `spans` belong to pair k."""

    tokens: Tokens
    spans: Spans
    kept_N: np.ndarray  # indices of the pairs among the given examples
    n_left_out: int  # pairs with a truncated target


def wic_pairs(source: Source, split: str, most: int | None, seed: int) -> list[Row]:
    """The labelled pairs of a split, or `most` of them, sampled by a hash of the seed."""
    return drawn(WiC().rows_of(source, split), most, seed)


def find_targets(
    rows: Sequence[Row], tokenizer: Any, max_length: int, form: Form = "bi"
) -> Targets:
    """Token spans of both targets of each pair: all tokens that overlap [start, end).

    A pair with a target beyond `max_length` tokens is left out and counted.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> row = {"sentence1": "the dog", "start1": 4, "end1": 7}
    >>> row |= {"sentence2": "a dog", "start2": 2, "end2": 5}
    >>> found = find_targets([row], build_tiny(8, 1, 1).tokenizer, 16)
    >>> found.spans.sentence_N.tolist(), found.spans.start_N.tolist(), found.n_left_out
    ([0, 1], [2, 2], 0)
    """
    if form == "cross":
        first, second = ([str(row[side]) for row in rows] for side in PAIR)
        tokens = tokenise(tokenizer, first, max_length, second)
    else:
        tokens = tokenise(tokenizer, [str(row[s]) for row in rows for s in PAIR], max_length)
    kept, found = [], []
    for k, row in enumerate(rows):
        both = []
        for side in (0, 1):
            at, own_side = (k, side) if form == "cross" else (2 * k + side, 0)
            begin, end = int(row[f"start{side + 1}"]), int(row[f"end{side + 1}"])
            inside = [
                t
                for t, (start, stop) in enumerate(tokens.offsets[at])
                if tokens.sides[at][t] == own_side and start < end and stop > begin
            ]
            both += [(at, inside[0], inside[-1] + 1)] if inside else []
        if len(both) == 2:
            kept.append(k)
            found += both
    return Targets(tokens, _spans(found), np.array(kept, dtype=np.int64), len(rows) - len(kept))


def _in_order(sentences: Sequence[str], seed: int) -> Iterator[str]:
    """The sentences, shuffled by the seed."""
    return (sentences[i] for i in hashed_order(len(sentences), seed).tolist())


def _tokenised(
    texts: Iterable[str], tokenizer: Any, max_length: int
) -> Iterator[tuple[Tokens, int, str]]:
    """Distinct sentences, tokenised, in order; a few are held at a time."""
    seen: set[bytes] = set()
    rest = iter(texts)
    while some := list(islice(rest, CHUNK)):
        tokens = tokenise(tokenizer, some, max_length)
        for i, text in enumerate(some):
            key = np.array(tokens.ids[i], dtype=np.int32).tobytes()
            if key not in seen:
                seen.add(key)
                yield tokens, i, text


def _add(kept: Tokens, tokens: Tokens, i: int) -> None:
    """Append sentence i of `tokens` to `kept`."""
    parts: Iterable[tuple[list[Any], list[Any]]] = zip(kept, tokens, strict=True)
    for own, part in parts:
        own.append(part[i])


def _spans(places: Sequence[tuple[int, int, int]]) -> Spans:
    return Spans(*np.array(places, dtype=np.int64).reshape(-1, 3).T)


def _plain(text: str) -> str:
    """A text without case and accents: no tokenizer merges more spellings than this."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()
