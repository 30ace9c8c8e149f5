"""Logged rows as series: what tables and figures are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isotrain.keys import DEV, Place, is_aside, place_of

LABELS = {
    "isoscore": "IsoScore (1 = isotropic)",
    "isoscore_corrected": "IsoScore, bias-corrected (1 = isotropic)",
    "mean_cosine": "mean cosine (0 = isotropic)",
    "partition": "ln I(W) (0 = isotropic)",
}
Series = list[tuple[float, float]]  # (step, value)


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
    [Place(metric='isoscore', where='layer_00', view='cls', rows='isotropy')]
    """
    keys = sorted({key for row in rows for key in row if key.startswith(f"{DEV}/")})
    return {place: series(rows, key) for key in keys if (place := place_of(key))}


def measured(places: Iterable[Place]) -> list[str]:
    """The metrics among the places, without counts of rows, nulls of other metrics, and indices.

    >>> measured([Place("n_rows", "layer_00", "cls"), Place("isoscore", "layer_00", "cls")])
    ['isoscore']
    """
    metrics = {place.metric for place in places}
    return sorted(m for m in metrics if not is_aside(m) and "_index_" not in m)


def chance(places: dict[Place, Series], place: Place) -> str:
    """What chance gives the metric of a place at the last step, as a range; or nothing.

    >>> chance({}, Place("isoscore", "layer_00", "cls"))
    ''
    """
    low, high = (
        places.get(place._replace(metric=f"{place.metric}_null_{end}")) for end in ("low", "high")
    )
    return f"{low[-1][1]:.2g}…{high[-1][1]:.2g}" if low and high else ""
