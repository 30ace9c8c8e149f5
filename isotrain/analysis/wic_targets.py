"""The target words of WiC as token spans, found by their characters. N pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isotrain.analysis.encode import Spans, Tokens, tokenise
from isotrain.analysis.pair_tokens import tokenise_pairs
from isotrain.geometry.groups import hashed_order
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.wic import WiC
from isotrain.types import Row, Source


class Targets(NamedTuple):
    """Pairs whose targets were both kept: row 2k and 2k + 1 of `spans` are those of pair k."""

    tokens: Tokens
    spans: Spans
    kept_N: np.ndarray  # places of the pairs among the rows given
    n_left_out: int  # pairs with a target that was cut off


def wic_pairs(source: Source, split: str, most: int | None, seed: int) -> list[Row]:
    """The pairs of a split that have gold, or `most` of them, drawn by a hash of the seed.

    Raises:
        ValueError: a target that is not inside its sentence.
    """
    rows = WiC().rows_of(source, split)
    if most is None or len(rows) <= most:
        return rows
    return [rows[i] for i in sorted(hashed_order(len(rows), seed)[:most].tolist())]


def find_targets(
    rows: Sequence[Row], tokenizer: Any, max_length: int, form: Form = "bi"
) -> Targets:
    """The token spans of both targets of each pair.

    A target is where `start` and `end` say, never where the word stands first: its span is all
    tokens that overlap those characters (of a word in several pieces, all of them). A pair with
    a target beyond `max_length` tokens is left out and counted.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> row = {"sentence1": "the dog", "start1": 4, "end1": 7}
    >>> row |= {"sentence2": "a dog", "start2": 2, "end2": 5}
    >>> found = find_targets([row], build_tiny(8, 1, 1).tokenizer, 16)
    >>> found.spans.sentence_N.tolist(), found.spans.start_N.tolist(), found.n_left_out
    ([0, 1], [2, 2], 0)
    """
    pairs = [(str(row["sentence1"]), str(row["sentence2"])) for row in rows]
    if form == "cross":
        tokens, owners = tokenise_pairs(tokenizer, pairs, max_length)
    else:
        tokens = tokenise(tokenizer, [text for pair in pairs for text in pair], max_length)
        owners = [[None if special else 0 for special in marks] for marks in tokens.special]
    kept, found = [], []
    for k, row in enumerate(rows):
        both = []
        for side in (0, 1):
            sentence, owner = (k, side) if form == "cross" else (2 * k + side, 0)
            span = (int(row[f"start{side + 1}"]), int(row[f"end{side + 1}"]))
            inside = _inside(tokens.offsets[sentence], owners[sentence], owner, span)
            both += [(sentence, inside[0], inside[-1] + 1)] if inside else []
        if len(both) == 2:
            kept.append(k)
            found += both
    at = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Targets(tokens, Spans(*at.T), np.array(kept, dtype=np.int64), len(rows) - len(kept))


def _inside(
    offsets_T2: np.ndarray,
    owners: Sequence[int | None],
    owner: int,
    span: tuple[int, int],
) -> list[int]:
    """Tokens of text `owner` that overlap the characters of a span."""
    return [
        t
        for t, ((start, stop), own) in enumerate(zip(offsets_T2, owners, strict=True))
        if own == owner and start < span[1] and stop > span[0]
    ]
