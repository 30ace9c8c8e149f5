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


class Beside(NamedTuple):
    """A published figure and the value measured here; None if it was not measured."""

    published: Published
    here: float | None
    verdict: str | None  # if the encoder is the same, and a tolerance is given


def read_published(entries: Sequence[Mapping[str, Any]]) -> list[Published]:
    """The figures of `analysis.published`; a ValueError names an invalid entry."""
    return TypeAdapter(list[Published], config=ConfigDict(strict=True)).validate_python(
        [dict(entry) for entry in entries]
    )


def beside(published: Sequence[Published], records: Sequence[Record], encoder: str) -> list[Beside]:
    """Each published figure with its first matching record, as given or before a run.

    `encoder` is the one measured. Figures of other encoders are shown for reference, not checked.

    >>> figure = Published("bert", {"set": "stsb"}, "spearman", 54.1, 0.1, "a paper")
    >>> measured = {"set": "stsb", "spearman": 54.15, "weights": "as given"}
    >>> beside([figure], [measured], "bert")[0].verdict
    'agrees'
    """
    candidates = [r for r in records if r.get("weights") != "after"]
    comparisons = []
    for figure in published:
        where = figure.where.items()
        values = (r.get(figure.column) for r in candidates if where <= r.items())
        here = next((float(value) for value in values if isinstance(value, int | float)), None)
        is_same = figure.encoder == encoder
        comparisons.append(Beside(figure, here, _verdict(figure, here) if is_same else None))
    return comparisons


def _verdict(figure: Published, here: float | None) -> str | None:
    if here is None:
        return "not measured"
    if figure.tolerance is None:
        return None
    gap = abs(here - figure.value)  # 54.1 − 54.0 is more than 0.1
    return "agrees" if gap < figure.tolerance or isclose(gap, figure.tolerance) else "differs"


def published_table(compared: Sequence[Beside], encoder: str) -> Table:
    """Table of published and measured figures; sources are in the notes."""
    rows: list[list[Cell]] = []
    sources: dict[str, str] = {}  # encoder and source: its number
    for figure, here, verdict in compared:
        where = ", ".join(f"{key} {value}" for key, value in figure.where.items())
        name = f"{figure.column} ({where})" if where else figure.column
        label = sources.setdefault(f"{figure.encoder}, {figure.source}", f"[{len(sources) + 1}]")
        tolerance = None if figure.tolerance is None else f"{figure.tolerance:g}"
        rows.append([name, f"{figure.value:g}", label, here, tolerance, verdict])
    return Table(
        "published",
        "Published figures beside those measured here",
        ("figure", "published", "by", "here", "tolerance", "verdict"),
        rows,
        (
            *(f"{number} {source}" for source, number in sources.items()),
            f"Here: {encoder}. A verdict is given where the published figure is of the same "
            "encoder and has a tolerance.",
        ),
    )
