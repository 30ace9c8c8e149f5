"""Base class of analyses: parts measure an encoder; tables and plots show their records.

N embeddings, D dimensions, L blocks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from isotrain.analysis.charts import LinePlot, Picture, draw
from isotrain.analysis.show import Cell, Frames, Record, Table, TableSpec, render
from isotrain.arguments import checked
from isotrain.encoders.base import Encoder
from isotrain.tasks.data.sources import Source

__all__ = ["Cell", "Picture", "Record", "Table"]  # re-exported for authors of analyses
T = TypeVar("T")
AS_GIVEN, BEFORE, AFTER = "as given", "before", "after"  # weights of an encoder


class Subject(NamedTuple):
    """The measured encoder, its data, and a folder for temporary embeddings."""

    encoder: Encoder  # in evaluation mode
    source: Source
    seed: int
    batch_size: int  # sentences of a forward pass
    max_length: int  # tokens of a sentence at most
    folder: Path  # for embeddings on disk
    weights: str = AS_GIVEN  # of the encoder; with `from_run` before, and then after


class PartResult(NamedTuple):
    """Results of a part of an analysis."""

    records: Sequence[Record]
    arrays: Mapping[str, np.ndarray] = {}  # for pictures: small maps of embeddings


class Part(NamedTuple):
    """A piece of an analysis that is measured, stored and resumed separately."""

    name: str  # of its file: letters, digits, dashes
    measure: Callable[[], PartResult]


class Outcome(NamedTuple):
    """All results: records with their `weights`, and arrays by `<weights>/<name>`."""

    records: Sequence[Record]
    arrays: Mapping[str, np.ndarray]


@dataclass_transform()
def analysis(cls: type[T]) -> type[T]:
    """Class decorator: annotated names become arguments, validated by pydantic."""
    data_class = dataclass(cls)
    data_class.__init__ = checked(data_class.__init__)  # type: ignore[method-assign]
    return data_class


@dataclass
class Analysis(ABC):
    """An experiment on the hidden states of an encoder; only small heads are trained.

    Parts measure; tables and plots are made only from their stored records.
    """

    name: ClassVar[str]
    question: ClassVar[str]  # that it answers, in one sentence
    TABLES: ClassVar[Sequence[TableSpec]] = ()
    PLOTS: ClassVar[Sequence[Any]] = ()  # LinePlots, and functions of an Outcome to Pictures
    published: Sequence[Mapping[str, Any]] = ()

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The data sets that it reads."""
        return []

    def missing(self, source: Source) -> Sequence[str]:
        """Requirements missing from `source`, with fixes; reads no example."""
        return [why for data_set in self.data_sets(source) if (why := source.missing(data_set))]

    @abstractmethod
    def parts(self, subject: Subject) -> Iterable[Part]:
        """Its parts, in order; cheap to create, expensive to measure."""

    def tables(self, outcome: Outcome) -> Iterator[Table]:
        """Tables of the results."""
        frames = Frames(outcome.records)
        for spec in self.TABLES:
            yield from render(spec, frames, self)

    def pictures(self, outcome: Outcome) -> Iterator[Picture]:
        """Figures of the results."""
        frames = Frames(outcome.records)
        for plot in self.PLOTS:
            yield from (draw(plot, frames, self) if isinstance(plot, LinePlot) else plot(outcome))
