"""Token tags in the column format of CoNLL, and the score of the entities that they mark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from isotrain.tasks.data.sources import STEMS

ENDINGS = (".txt", ".conll")
TAG = re.compile(r"O|[BI]-\S+")
OUTSIDE = "O"


class Tagged(NamedTuple):
    """A sentence: words, and the tag of each."""

    words: list[str]
    tags: list[str]


class Entity(NamedTuple):
    """The words `start` to `stop` (excluded) are one of a kind."""

    kind: str
    start: int
    stop: int


def conll_file(folder: Path, split: str) -> Path | None:
    """The file of a split: the first of train, or dev, val, valid, or test, as .txt or .conll."""
    names = (folder / (stem + ending) for stem in STEMS[split] for ending in ENDINGS)
    return next(filter(Path.is_file, names), None)


def read_conll(file: Path) -> list[Tagged]:
    """The sentences of a file.

    A line is a word, its columns and at last its tag, with white space between them; a blank line
    ends a sentence, and lines of `-DOCSTART-` are skipped. Tags are `O`, `B-kind`, `I-kind`.

    Raises:
        ValueError: no sentence, or a line with one column, with another number of columns than
            the first one, or with another tag; file and line are named.
    """
    sentences = [Tagged([], [])]
    n_columns = 0
    for at, line in _lines(file):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            sentences.append(Tagged([], []))
            continue
        n_columns = n_columns or len(columns)
        if len(columns) != n_columns or n_columns == 1:
            raise ValueError(
                f"{at}: a line must have a word, {'' if n_columns == 1 else n_columns - 2} columns"
                f" and a tag, got {len(columns)} columns: {line.strip()[:40]!r}"
            )
        if not TAG.fullmatch(columns[-1]):
            raise ValueError(
                f"{at}: the last column must be a tag O, B-kind or I-kind, got {columns[-1]!r}; "
                "write other schemes (BIOES) as BIO"
            )
        sentences[-1].words.append(columns[0])
        sentences[-1].tags.append(columns[-1])
    if not (found := [sentence for sentence in sentences if sentence.words]):
        raise ValueError(f"{file} has no sentence: lines of words with their tags")
    return found


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of the tags of a sentence.

    One begins at `B-kind`, and at an `I-kind` that continues none of its kind; so the tags of BIO
    and of IOB1, where `B-` only parts neighbours of a kind, are read alike, and so are the odd
    ones that a model predicts. Tjong Kim Sang and De Meulder 2003 score this way.

    >>> sorted(entities(["I-PER", "I-PER", "B-PER", "O", "I-LOC"]))
    ... # doctest: +NORMALIZE_WHITESPACE
    [Entity(kind='LOC', start=4, stop=5), Entity(kind='PER', start=0, stop=2),
     Entity(kind='PER', start=2, stop=3)]
    """
    found = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        mark, _, own = tag.partition("-")
        if kind and (mark != "I" or own != kind):
            found.add(Entity(kind, start, place))
            kind = ""
        if own and not kind:
            start, kind = place, own
    return found


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """All lines, blank ones too, each after its place `<file>:<number>`."""
    # As bytes: text mode would also break lines at a lone carriage return.
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield f"{file}:{number}", line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise ValueError(f"{file}:{number}: not UTF-8 ({error.reason})") from error
