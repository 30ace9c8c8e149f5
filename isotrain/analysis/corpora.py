"""Sentences of the data sets of a source, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isotrain.analysis import sst2_data_set as sst2
from isotrain.analysis import sts_data_sets as sts
from isotrain.tasks import rte, snli, text, wic
from isotrain.tasks.data.sources import SPLITS, DataSet, Source, load_split
from isotrain.tasks.text import UNKNOWN, as_written, is_heading, split_sentences

PAIR = ("sentence1", "sentence2")


class _Texts(NamedTuple):
    data_set: DataSet
    fields: Sequence[str]


TEXTS: Mapping[str, _Texts] = {
    "snli": _Texts(snli.DATA, PAIR),
    "rte": _Texts(rte.DATA, PAIR),
    "wic": _Texts(wic.DATA, PAIR),
    "sst2": _Texts(sst2.DATA, ("sentence",)),
    "wikitext-2": _Texts(text.DATA, ("text",)),
    **{name: _Texts(data_set, PAIR) for name, data_set in sts.STS.items()},
}


def data_set_of(corpus: str) -> DataSet:
    """The data set of a corpus.

    Raises:
        ValueError: there is no such corpus.
    """
    if corpus not in TEXTS:
        raise ValueError(f"there is no corpus {corpus}; there are {', '.join(TEXTS)}")
    return TEXTS[corpus].data_set


def check_splits(splits: Sequence[str]) -> tuple[str, ...]:
    """The splits of a corpus as they were given.

    Raises:
        ValueError: none, one twice, or one that is neither train, dev nor test.
    """
    if not splits or len(set(splits)) < len(splits) or not set(splits) <= set(SPLITS):
        raise ValueError(f"splits must be some of {', '.join(SPLITS)}, each once, got {splits}")
    return tuple(splits)


def read_corpus(source: Source, corpus: str, splits: Sequence[str], unknown: str) -> list[str]:
    """The different sentences of some splits of a data set, in the order in which they first stood.

    SNLI has each premise three times, and repeated sentences have equal rows, which raise every
    similarity: so each sentence counts once. The paragraphs of WikiText are cut into sentences and
    written as ordinary text, headings left out, with `unknown` (the tokenizer's unknown token) for
    rare words.

    Raises:
        ValueError: no such corpus, or no sentence in it.
    """
    data_set, fields = data_set_of(corpus), TEXTS[corpus].fields
    rows = [row for split in splits for row in load_split(source, data_set, split)]
    found = [str(row[field]) for row in rows for field in fields]
    if corpus == "wikitext-2":
        found = [*_of_paragraphs(found, unknown)]
    sentences = list(dict.fromkeys(one for line in found if (one := line.strip())))
    if not sentences:
        raise ValueError(f"{corpus} has no sentence in {', '.join(splits)}")
    return sentences


def missing(source: Source, data_sets: Iterable[DataSet]) -> list[str]:
    """What a source does not have of some data sets, with the ways out."""
    return [problem for one in data_sets if (problem := source.missing(one))]


def _of_paragraphs(lines: Iterable[str], unknown: str) -> Iterable[str]:
    for line in lines:
        if line.strip() and not is_heading(line):
            for sentence in split_sentences(line):
                yield as_written(sentence).replace(UNKNOWN, unknown)
