"""What an analysis is: parts that measure an encoder, and tables and pictures of what they found.

N rows, D dimensions, L blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from matplotlib.figure import Figure

from isotrain.encoders.base import Encoder
from isotrain.tasks.data.sources import Source

Cell = str | float | int | None
Record = Mapping[str, Cell]
"""One measurement: flat, so that it is a line of a CSV file and a row of a table."""


class Subject(NamedTuple):
    """What is measured, with what, and where rows may be kept while it is."""

    encoder: Encoder  # in evaluation mode
    source: Source
    seed: int
    batch_size: int  # sentences of a forward pass
    max_length: int  # tokens of a sentence at most
    folder: Path  # for rows of this encoder on disk; empty at first, or of a stopped attempt
    tell: Callable[[str], None]  # what is being done now, for a terminal
    weights: str = "as given"  # of the encoder; with `from_run` before, and then after


class Found(NamedTuple):
    """What a part of an analysis measured."""

    records: Sequence[Record]
    arrays: Mapping[str, np.ndarray] = {}  # for pictures: maps of rows, small


class Part(NamedTuple):
    """A piece of an analysis that is measured, and kept, on its own: what is resumed."""

    name: str  # of its file: letters, digits, dashes
    measure: Callable[[], Found]


class Table(NamedTuple):
    """Records as people read them."""

    name: str  # of its file
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()  # method, N, how to read it


class Picture(NamedTuple):
    """A figure with the name of its files, and a sentence for readers who do not see it."""

    name: str
    title: str
    figure: Figure
    description: str


class Outcome(NamedTuple):
    """All that was measured: the records of every part, and its arrays by `<weights>/<name>`.

    Every record has `weights`: `as given`, or with `from_run`, `before` and `after`.
    """

    records: Sequence[Record]
    arrays: Mapping[str, np.ndarray]


class Analysis(Protocol):
    """An experiment on the hidden states of an encoder; nothing is trained but small heads.

    Parts measure; tables and pictures are made of their records alone, so that they can be made
    again from what is on disk. `published` has mappings, see `isotrain.analysis.published`. It may
    have `instead`, the name of what it measures in place of an encoder (None = it needs one): then
    none is loaded, and what was published for an encoder of that name is held against it.
    """

    name: str
    question: str  # that it answers, in one sentence
    published: Sequence[Mapping[str, Any]]

    def missing(self, source: Source) -> Sequence[str]:
        """What it needs and `source` does not have, with the ways out; reads no row."""

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The data sets that it will read."""

    def parts(self, subject: Subject) -> Iterable[Part]:
        """Its parts, in order; making one is quick, measuring it is not."""

    def tables(self, outcome: Outcome) -> Iterable[Table]:
        """What was found, to read."""

    def pictures(self, outcome: Outcome) -> Iterable[Picture]:
        """What was found, to look at."""
