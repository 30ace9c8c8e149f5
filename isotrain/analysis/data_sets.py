"""Data sets of analyses: distinct sentences of a corpus, and labelled pairs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from isotrain.tasks import text, wic
from isotrain.tasks.contrastive import STSB
from isotrain.tasks.data.sources import DataSet, Source, load_split
from isotrain.tasks.presets import preset
from isotrain.tasks.text import UNKNOWN, as_written, is_heading, split_sentences

PAIR = ("sentence1", "sentence2")
SST2: Final = "sst2"
AVAILABLE: Final = "available"
NO_GOLD = "its split has no row with gold"
Available = Literal["available"]  # all data sets that the source has
Split = Literal["train", "dev", "test"]
Corpus = Literal[
    "snli",
    "rte",
    "wic",
    "sst2",
    "wikitext-2",
    "stsb",
    "sts12",
    "sts13",
    "sts14",
    "sts15",
    "sts16",
    "sickr",
]
TEST_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
REVISIONS = {  # of mteb/<name>-sts; its SICK-R has 9,927 pairs, published are 4,927 of them
    "sts12": "a0d554a64d88156834ff5ae9920b964011b16384",
    "sts13": "7e90230a92c190f1bf69ae9002b8cea547a64cca",
    "sts14": "6031580fec1f6af667f0bd2da0a551cf4f0b2375",
    "sts15": "ae752c7c21bf194d8b67fd573edf7ae58183cbe3",
    "sts16": "4d8694f8f0e0100860b497b999b3dbed754a0513",
    "sickr": "20a6d6f312dd54037fe07a32d58e5e168867909d",
}
STS = {
    name: DataSet(
        name=name,
        fields={"sentence1": str, "sentence2": str, "score": float},
        target="score",
        hub_id=f"mteb/{name}-sts",
        hub_config=None,
        hub_revision=revision,
        folders=(name.upper().replace("SICKR", "SICK-R"),),
        hides=(),
        needs=("test",),
    )
    for name, revision in REVISIONS.items()
} | {"stsb": STSB}
SST2_DATA = preset(SST2).data_set
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


SetName = Literal[
    "sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "stsb_dev", "sst2"
]  # keys of PLACES


class Texts(NamedTuple):
    """A data set and its text fields."""

    data_set: DataSet
    fields: Sequence[str] = PAIR


TEXTS: Mapping[str, Texts] = {  # by Corpus
    "snli": Texts(preset("snli").data_set),
    "rte": Texts(preset("rte").data_set),
    "wic": Texts(wic.DATA),
    SST2: Texts(SST2_DATA, ("sentence",)),
    "wikitext-2": Texts(text.DATA, ("text",)),
    **{name: Texts(data_set) for name, data_set in STS.items()},
}
RUNNING = {"wikitext-2": text.DATA, "ptb": PTB}  # running text, to be cut into chunks


class Place(NamedTuple):
    """A data set and its scored split."""

    data_set: DataSet
    split: str


PLACES: Mapping[str, Place] = {
    **{name: Place(STS[name], "test") for name in TEST_SETS},
    "stsb_dev": Place(STS["stsb"], "dev"),
    SST2: Place(SST2_DATA, "test"),
}


def read_corpus(source: Source, corpus: str, splits: Sequence[str], unknown: str) -> list[str]:
    """The distinct sentences of some splits of a data set, in order of first occurrence.

    Repeated ones (SNLI has each premise three times) would raise every similarity. WikiText is cut
    into sentences and detokenised, without headings. Its rare words become the tokenizer's
    `unknown` token.
    """
    data_set, fields = TEXTS[corpus]
    rows = [row for split in splits for row in load_split(source, data_set, split)]
    texts = [str(row[field]) for row in rows for field in fields]
    if corpus == "wikitext-2":
        lines = (line for line in texts if line.strip() and not is_heading(line))
        sentences = (sentence for line in lines for sentence in split_sentences(line))
        texts = [as_written(sentence).replace(UNKNOWN, unknown) for sentence in sentences]
    return list(dict.fromkeys(filter(None, map(str.strip, texts))))


class Pairs(NamedTuple):
    """P pairs of sentences and their gold similarity."""

    sentences: list[str]  # distinct, in order of first occurrence
    first_P: np.ndarray  # indices of sentences
    second_P: np.ndarray
    gold_P: np.ndarray


class Present(NamedTuple):
    """Which of the requested data sets a source has."""

    names: list[str]
    reasons: dict[str, str]  # reasons of the missing ones
    problems: list[str]  # errors: a requested set is missing, or of `available` all are


def present(source: Source, requested: str | Sequence[str], specs: Mapping[str, Any]) -> Present:
    """Requested data sets of `specs` that the source has; reads none."""
    candidates = specs if isinstance(requested, str) else dict.fromkeys(requested)
    reasons = {
        name: reason for name in candidates if (reason := source.missing(specs[name].data_set))
    }
    names = [name for name in candidates if name not in reasons]
    return Present(
        names, reasons, [] if isinstance(requested, str) and names else [*reasons.values()]
    )


def readable_sets(
    source: Source, sets: str | Sequence[str]
) -> tuple[dict[str, Pairs], dict[str, str]]:
    """Pairs of each set except SST-2, and the reason for each set left out."""
    names, reasons, _ = present(source, sets, PLACES)
    pairs_of = {name: sts_pairs(source, *PLACES[name]) for name in names if name != SST2}
    reasons |= {name: NO_GOLD for name, pairs in pairs_of.items() if not len(pairs.gold_P)}
    return {name: pairs for name, pairs in pairs_of.items() if name not in reasons}, reasons


def sts_pairs(source: Source, data_set: DataSet, split: str) -> Pairs:
    """The labelled pairs of a split; a split may have none."""
    rows = [row for row in load_split(source, data_set, split) if row["score"] >= 0]
    texts = [row[field].strip() for field in PAIR for row in rows]
    index, sentences = pd.factorize(np.array(texts, object))
    gold_P = np.array([row["score"] for row in rows])
    first_P, second_P = np.split(index, 2)
    return Pairs([*sentences], first_P, second_P, gold_P)
