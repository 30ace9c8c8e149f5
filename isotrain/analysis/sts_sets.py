"""Sentence pairs with gold similarity, and what a source has of them. P pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isotrain.analysis import sst2_data_set as sst2
from isotrain.analysis import sts_data_sets as sts
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import DataSet, load_split
from isotrain.types import Row, Source

SUBSET = "file"  # field of a row that names its subset


class Place(NamedTuple):
    """A data set, and the split of it that is scored."""

    data_set: DataSet
    split: str


SST2 = "sst2"
TEST_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
PLACES: Mapping[str, Place] = {
    **{name: Place(sts.STS[name], "test") for name in TEST_SETS},
    "stsb_dev": Place(sts.STS["stsb"], "dev"),
    SST2: Place(sst2.DATA, "test"),
}
AVAILABLE = "available"


class Pairs(NamedTuple):
    """P pairs of sentences, their gold similarity, and the subset of each where rows name one."""

    sentences: list[str]  # the different ones, in the order in which they first stood
    first_P: np.ndarray  # numbers of sentences
    second_P: np.ndarray
    gold_P: np.ndarray
    subset_P: np.ndarray | None


class NoGoldError(CannotRunError):
    """A split without any row that has gold."""


class _Once(NamedTuple):
    """A source of which one split was read."""

    source: Source
    rows: list[Row]

    def missing(self, data_set: DataSet) -> str | None:
        return self.source.missing(data_set)

    def revision_of(self, data_set: DataSet) -> str:
        return self.source.revision_of(data_set)

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        return self.rows


def check_sets(sets: str | Sequence[str]) -> None:
    """Refuse what names no set.

    Raises:
        ValueError: neither `available` nor a list of known names, each once.
    """
    known = f"sets must be {AVAILABLE}, or a list of {', '.join(PLACES)}"
    if isinstance(sets, str):
        if sets != AVAILABLE:
            raise ValueError(f"{known}; got {sets!r}, did you mean [{sets}]?")
        return
    if odd := [name for name in sets if name not in PLACES]:
        raise ValueError(f"{known}; got {odd[0]!r}")
    if not sets or len(set(sets)) < len(sets):
        raise ValueError(f"{known}, each once and one at least; got {list(sets)}")


class Readable(NamedTuple):
    """The sets to measure, those of pairs read; and why others of `available` are not."""

    names: list[str]
    pairs: dict[str, Pairs]
    absent: dict[str, str]


def chosen_sets(source: Source, sets: str | Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The sets that a source has, and why others of `available` are not; reads no row."""
    wanted = list(PLACES) if sets == AVAILABLE else list(sets)
    absent = {name: problem for name in wanted if (problem := source.missing(PLACES[name][0]))}
    return [name for name in wanted if name not in absent], absent


def readable_sets(source: Source, sets: str | Sequence[str]) -> Readable:
    """The sets of a source with their pairs; of `available` those without gold are left out.

    Raises:
        CannotRunError: a set that was named has no row with gold, or none is left.
    """
    names, absent = chosen_sets(source, sets)
    pairs: dict[str, Pairs] = {}
    for name in names:
        if name == SST2:
            continue
        try:
            pairs[name] = sts_pairs(source, *PLACES[name])
        except NoGoldError as error:
            if sets != AVAILABLE:
                raise
            absent[name] = str(error)
    if set(names) <= set(absent):
        raise CannotRunError(f"no set has gold: {'; '.join(absent.values())}")
    return Readable([name for name in names if name not in absent], pairs, absent)


def sts_pairs(source: Source, data_set: DataSet, split: str) -> Pairs:
    """The pairs of a split that have gold; rows of some sources name the subset they are of.

    Raises:
        NoGoldError: a ValueError: no row has gold, or there is no row.
    """
    found = source.read(data_set, split)
    has_subsets = bool(found) and all(row.get(SUBSET) for row in found)
    if has_subsets:
        data_set = data_set._replace(fields={**data_set.fields, SUBSET: str})
    once = _Once(source, found)
    rows = [row for row in load_split(once, data_set, split) if row["score"] >= 0]
    if not rows:
        raise NoGoldError(
            f"{data_set.name}/{split} has no row with gold in {source.revision_of(data_set)}; "
            "leave it out of analysis.sets, or use another source"
        )
    sides = [[row[field].strip() for row in rows] for field in ("sentence1", "sentence2")]
    number = {text: i for i, text in enumerate(dict.fromkeys(sides[0] + sides[1]))}
    first_P, second_P = (np.array([number[text] for text in side]) for side in sides)
    return Pairs(
        list(number),
        first_P,
        second_P,
        np.array([row["score"] for row in rows]),
        np.array([row[SUBSET] for row in rows]) if has_subsets else None,
    )
