"""Compare published figures with measured values."""

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter

from isotrain.analysis.show import Cell, Record, Table


class Published(NamedTuple):
    """A published figure: its encoder, and the record and column it corresponds to."""

    encoder: str  # encoder.name of its configuration
    where: Mapping[str, Any]  # keys and values that identify the record
    column: str
    value: float
    tolerance: float | None  # largest accepted deviation; None = shown, not checked
    source: str

    @property
    def described(self) -> str:
        """Column and record, in words."""
        where = ", ".join(f"{key} {value}" for key, value in self.where.items())
        return f"{self.column} ({where})" if where else self.column


class Beside(NamedTuple):
    """A published figure and the value measured here; None if it was not measured."""

    published: Published
    here: float | None
    of_this_encoder: bool

    @property
    def verdict(self) -> str | None:
        """Whether the two agree: where the encoder is the same, and a tolerance is given."""
        tolerance = self.published.tolerance
        if not self.of_this_encoder:
            return None
        if self.here is None:
            return "not measured"
        if tolerance is None:
            return None
        off = abs(self.here - self.published.value)
        is_near = off <= tolerance or isclose(off, tolerance)  # 54.1 − 54.0 is more than 0.1
        return "agrees" if is_near else "differs"


def read_published(given: Sequence[Mapping[str, Any]]) -> list[Published]:
    """The figures of `analysis.published`; a ValueError names the entry that is none."""
    return TypeAdapter(list[Published], config=ConfigDict(strict=True)).validate_python(
        [dict(entry) for entry in given]
    )


def beside(published: Sequence[Published], records: Sequence[Record], encoder: str) -> list[Beside]:
    """Each published figure with its first matching record, as given or before a run.

    `encoder` is the one measured. Figures of other encoders are shown for reference, not checked.

    >>> figure = Published("bert", {"set": "stsb"}, "spearman", 54.1, 0.1, "a paper")
    >>> measured = {"set": "stsb", "spearman": 54.15, "weights": "as given"}
    >>> beside([figure], [measured], "bert")[0].verdict
    'agrees'
    """

    def here(figure: Published) -> float | None:
        for record in records:
            is_start = record.get("weights") in (None, "as given", "before")
            value = record.get(figure.column)
            fits = all(record.get(key) == wanted for key, wanted in figure.where.items())
            if is_start and fits and isinstance(value, int | float):
                return float(value)
        return None

    return [Beside(one, here(one), one.encoder == encoder) for one in published]


def published_table(compared: Sequence[Beside], encoder: str) -> Table:
    """Table of published and measured figures; sources are in the notes."""
    rows: list[list[Cell]] = []
    sources: dict[tuple[str, str], str] = {}  # encoder and source: its number
    for one in compared:
        figure = one.published
        source = sources.setdefault((figure.encoder, figure.source), f"[{len(sources) + 1}]")
        tolerance = None if figure.tolerance is None else f"{figure.tolerance:g}"
        cells = (
            f"{figure.value:g}",
            source,
            one.here,
            tolerance,
            one.verdict,
        )  # digits as published
        rows.append([figure.described, *cells])
    return Table(
        "published",
        "Published figures beside those measured here",
        ("figure", "published", "by", "here", "tolerance", "verdict"),
        rows,
        (
            *(f"{number} {name}, {source}" for (name, source), number in sources.items()),
            f"Here: {encoder}. A verdict is given where the published figure is of the same "
            "encoder and has a tolerance.",
        ),
    )
