"""Logged rows as series: what tables and figures are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LABELS = {
    "isoscore": "IsoScore (1 = isotropic)",
    "mean_cosine": "mean cosine (0 = isotropic)",
    "partition": "ln I(W) (0 = isotropic)",
}
Series = list[tuple[float, float]]  # (step, value)


class Place(NamedTuple):
    """Where an isotropy value was measured."""

    metric: str
    where: str  # layer_03, or a site
    view: str  # cls, tokens; before, after


def series(rows: Sequence[dict[str, float]], key: str) -> Series:
    """(step, value) of every row that has `key`, in order; the last value of a step counts.

    >>> series([{"step": 0, "a": 1.0}, {"step": 2}, {"step": 0, "a": 3.0}], "a")
    [(0, 3.0)]
    """
    found = {row["step"]: row[key] for row in rows if key in row}
    return sorted(found.items())


def isotropy_places(rows: Sequence[dict[str, float]]) -> dict[Place, Series]:
    """Every isotropy series by its place.

    >>> list(isotropy_places([{"step": 0, "isotropy/isoscore/layer_00/cls": 0.5}]))
    [Place(metric='isoscore', where='layer_00', view='cls')]
    """
    keys = sorted({key for row in rows for key in row if key.startswith("isotropy/")})
    return {Place(*key.split("/")[1:]): series(rows, key) for key in keys}
