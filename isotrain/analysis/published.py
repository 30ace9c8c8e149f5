"""Published figures beside what was measured, and the check that holds one against the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        return abs(self.here - self.published.value) <= tolerance


def read_published(given: Sequence[Mapping[str, Any]]) -> list[Published]:
    """The figures of a configuration, `analysis.published`.

    Raises:
        ValueError: an entry with other keys than encoder, where, column, value, tolerance, source.
    """
    found = []
    for number, entry in enumerate(given, start=1):
        if set(entry) != KEYS:
            raise ValueError(
                f"analysis.published, entry {number}, must have the keys "
                f"{', '.join(sorted(KEYS))}, got {', '.join(sorted(map(str, entry)))}"
            )
        found.append(Published(**{str(key): value for key, value in entry.items()}))
    return found


def beside(published: Sequence[Published], records: Sequence[Record], encoder: str) -> list[Beside]:
    """Each published figure with the first record, of weights as given, that it is of.

    `encoder` is the one measured. A figure of another encoder is shown beside it, never judged.

    >>> figure = Published("bert", {"set": "stsb"}, "spearman", 54.1, 0.1, "a paper")
    >>> measured = {"set": "stsb", "spearman": 54.15, "weights": "as given"}
    >>> beside([figure], [measured], "bert")[0].agrees
    True
    """
    found = []
    for figure in published:
        here = next(
            (
                record[figure.column]
                for record in records
                if record.get("weights") in (None, "as given", "before")
                and all(record.get(key) == value for key, value in figure.where.items())
                and record.get(figure.column) is not None
            ),
            None,
        )
        value = float(here) if isinstance(here, int | float) else None
        found.append(Beside(figure, value, figure.encoder == encoder))
    return found


def disagreements(found: Sequence[Beside], encoder: str) -> list[str]:
    """What speaks against `check=published`: figures missed, and that there is none to compare."""
    judged = [one for one in found if one.is_judged]
    if not judged:
        return [
            f"check=published: no figure with a tolerance is published here for encoder {encoder}; "
            "use check=null, or add one to analysis.published"
        ]
    return [
        f"{described(one.published)}: published {one.published.value} ± {one.published.tolerance}, "
        f"measured {'nothing' if one.here is None else f'{one.here:.6g}'}"
        for one in judged
        if not one.agrees
    ]


def described(figure: Published) -> str:
    """Where a figure stands, in words.

    >>> described(Published("bert", {"set": "stsb", "layer": 3}, "spearman", 54.1, None, "x"))
    'spearman (set stsb, layer 3)'
    """
    where = ", ".join(f"{key} {value}" for key, value in figure.where.items())
    return f"{figure.column} ({where})" if where else figure.column
