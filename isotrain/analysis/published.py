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
    def is_judged(self) -> bool:
        """Whether the two must agree: same encoder, and a tolerance is given."""
        return self.of_this_encoder and self.published.tolerance is not None

    @property
    def agrees(self) -> bool:
        """Whether the measured value is within the tolerance."""
        tolerance = self.published.tolerance
        if self.here is None or tolerance is None:
            return False
        off = abs(self.here - self.published.value)
        return off <= tolerance or isclose(off, tolerance)  # 54.1 − 54.0 is more than 0.1


def read_published(given: Sequence[Mapping[str, Any]]) -> list[Published]:
    """The figures of `analysis.published`; a ValueError names the entry that is none."""
    return TypeAdapter(list[Published], config=ConfigDict(strict=True)).validate_python(
        [dict(entry) for entry in given]
    )


def check_comparable(published: Sequence[Published], encoder: str) -> None:
    """Reject `check=published` if no figure of this encoder has a tolerance."""
    if not any(one.encoder == encoder and one.tolerance is not None for one in published):
        raise ValueError(
            f"check=published needs a published figure of encoder {encoder} with a tolerance, and "
            "the analysis has none; use check=null, or add one to analysis.published"
        )


def beside(published: Sequence[Published], records: Sequence[Record], encoder: str) -> list[Beside]:
    """Each published figure with its first matching record, as given or before a run.

    `encoder` is the one measured. Figures of other encoders are shown for reference, not checked.

    >>> figure = Published("bert", {"set": "stsb"}, "spearman", 54.1, 0.1, "a paper")
    >>> measured = {"set": "stsb", "spearman": 54.15, "weights": "as given"}
    >>> beside([figure], [measured], "bert")[0].agrees
    True
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


def disagreements(found: Sequence[Beside]) -> list[str]:
    """Published figures of this encoder that were not reproduced, each with both values."""
    return [
        f"{one.published.described}: published {one.published.value} ± {one.published.tolerance}, "
        f"measured {'nothing' if one.here is None else f'{one.here:.6g}'}"
        for one in found
        if one.is_judged and not one.agrees
    ]


def published_table(compared: Sequence[Beside], encoder: str) -> Table:
    """Table of published and measured figures; sources are in the notes."""
    rows: list[list[Cell]] = []
    sources: dict[tuple[str, str], str] = {}  # encoder and source: its number
    for one in compared:
        figure = one.published
        verdict = ("agrees" if one.agrees else "differs") if one.is_judged else None
        if one.here is None and one.of_this_encoder:
            verdict = "not measured"
        source = sources.setdefault((figure.encoder, figure.source), f"[{len(sources) + 1}]")
        tolerance = None if figure.tolerance is None else f"{figure.tolerance:g}"
        cells = (f"{figure.value:g}", source, one.here, tolerance, verdict)  # digits as published
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
