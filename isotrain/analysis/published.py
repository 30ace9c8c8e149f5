"""Published figures beside what was measured, and the check that holds one against the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, NamedTuple

from isotrain.analysis.types import Record

KEYS = {"encoder", "where", "column", "value", "tolerance", "source"}


class Published(NamedTuple):
    """A figure somebody published: of which encoder, and which column of which record it is."""

    encoder: str  # encoder.name of its configuration
    where: Mapping[str, Any]  # keys and values that the record has
    column: str
    value: float
    tolerance: float | None  # how far a measurement may lie from it; None = shown, not judged
    source: str


class Beside(NamedTuple):
    """A published figure and the value measured here; None where there is none."""

    published: Published
    here: float | None
    of_this_encoder: bool

    @property
    def is_judged(self) -> bool:
        """Whether the two have to agree."""
        return self.of_this_encoder and self.published.tolerance is not None

    @property
    def agrees(self) -> bool:
        """Whether the value lies within the tolerance."""
        tolerance = self.published.tolerance
        if self.here is None or tolerance is None:
            return False
        off = abs(self.here - self.published.value)
        return off <= tolerance or isclose(off, tolerance)  # 54.1 − 54.0 is more than 0.1


def read_published(given: Sequence[Mapping[str, Any]]) -> list[Published]:
    """The figures of a configuration, `analysis.published`.

    Raises:
        ValueError: an entry with other keys than encoder, where, column, value, tolerance, source,
            or with a value that is no number, a tolerance that is neither null nor a number from
            0, or a `where` that is no mapping.
    """
    found = []
    for number, entry in enumerate(given, start=1):
        must = f"analysis.published, entry {number}, must have"
        if not isinstance(entry, Mapping) or set(entry) != KEYS:
            keys = ", ".join(sorted(map(str, entry))) if isinstance(entry, Mapping) else entry
            raise ValueError(f"{must} the keys {', '.join(sorted(KEYS))}, got {keys}")
        one = Published(**{str(key): value for key, value in entry.items()})
        if not isinstance(one.where, Mapping):
            raise ValueError(f"{must} a mapping of a record's keys as its where, got {one.where}")
        if not _is_number(one.value):
            raise ValueError(f"{must} a number as its value, got {one.value}")
        if one.tolerance is not None and not (_is_number(one.tolerance) and one.tolerance >= 0):
            raise ValueError(
                f"{must} null or a number from 0 as its tolerance, got {one.tolerance}"
            )
        found.append(one)
    return found


def check_comparable(published: Sequence[Published], encoder: str) -> None:
    """Refuse `check=published` where no figure of an encoder has a tolerance.

    Raises:
        ValueError: there is none.
    """
    if not any(one.encoder == encoder and one.tolerance is not None for one in published):
        raise ValueError(
            f"check=published needs a published figure of encoder {encoder} with a tolerance, and "
            "the analysis has none; use check=null, or add one to analysis.published"
        )


def beside(published: Sequence[Published], records: Sequence[Record], encoder: str) -> list[Beside]:
    """Each published figure with the first record that it is of, as given or before a run.

    `encoder` is the one measured. A figure of another encoder is shown beside it, never judged.

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
            if is_start and fits and value is not None:
                return float(value) if _is_number(value) else None
        return None

    return [Beside(one, here(one), one.encoder == encoder) for one in published]


def disagreements(found: Sequence[Beside]) -> list[str]:
    """Figures of this encoder that what was measured misses, each with both values."""
    return [
        f"{described(one.published)}: published {one.published.value} ± {one.published.tolerance}, "
        f"measured {'nothing' if one.here is None else f'{one.here:.6g}'}"
        for one in found
        if one.is_judged and not one.agrees
    ]


def described(figure: Published) -> str:
    """Where a figure stands, in words.

    >>> described(Published("bert", {"set": "stsb", "layer": 3}, "spearman", 54.1, None, "x"))
    'spearman (set stsb, layer 3)'
    """
    where = ", ".join(f"{key} {value}" for key, value in figure.where.items())
    return f"{figure.column} ({where})" if where else figure.column


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
