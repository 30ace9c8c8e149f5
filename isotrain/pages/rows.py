"""Logged rows as series: what tables and figures are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from isotrain.pages.readings import READINGS, base_of
from isotrain.runs.keys import COUNTS, DEV, VIEWS, Place, is_aside, place_of

Series = list[tuple[float, float]]  # (step, value)
Rows = Sequence[dict[str, float]]
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_SIZES = 3  # that a sentence lists


def series(rows: Rows, key: str) -> Series:
    """(step, value) of every row that has `key`, in order; the last value of a step counts.

    >>> series([{"step": 0, "a": 1.0}, {"step": 2}, {"step": 0, "a": 3.0}], "a")
    [(0, 3.0)]
    """
    found = {row["step"]: row[key] for row in rows if key in row}
    return sorted(found.items())


class End(NamedTuple):
    """The evaluation whose values are given last."""

    step: int
    is_kept: bool  # of the weights that were kept, while later ones were evaluated too

    @property
    def name(self) -> str:
        """The step, and why it is that one where it is not the last.

        >>> End(20, False).name, End(20, True).name
        ('step 20', 'kept weights (step 20)')
        """
        return f"kept weights (step {self.step})" if self.is_kept else f"step {self.step}"


def end_of(result: Mapping[str, Any], rows: Rows) -> End:
    """The evaluation of the weights that a run kept; where none is told, the last one.

    >>> rows = [{"step": step, "val/loss": 0.5} for step in (0, 20, 40)]
    >>> end_of({}, rows), end_of({"selected_step": 20}, rows)
    (End(step=40, is_kept=False), End(step=20, is_kept=True))
    """
    of_evaluations = ("val/", f"{DEV}/")
    steps = {int(row["step"]) for row in rows if any(key.startswith(of_evaluations) for key in row)}
    last, kept = max(steps, default=result.get("steps", 0)), result.get("selected_step")
    return End(kept, True) if kept in steps and kept < last else End(last, False)


def at(values: Series, step: float) -> float:
    """The value at a step; NaN where there is none.

    >>> at([(0, 0.5), (20, 0.75)], 20), at([(0, 0.5)], 20)
    (0.75, nan)
    """
    return dict(values).get(step, math.nan)


def isotropy_places(rows: Rows, metric: str = "", source: str = DEV) -> dict[Place, Series]:
    """Every isotropy series by its place; those of one metric where one is named.

    >>> list(isotropy_places([{"step": 0, "isotropy/isoscore/layer_00/cls": 0.5}]))
    [Place(metric='isoscore', where='layer_00', view='cls', rows='isotropy')]
    """
    start = f"{source}/{metric}/" if metric else f"{source}/"
    keys = sorted({key for row in rows for key in row if key.startswith(start)})
    return {place: series(rows, key) for key in keys if (place := place_of(key))}


def measured(places: Iterable[Place]) -> list[str]:
    """The metrics among the places, without counts of rows, nulls of other metrics, and indices.

    >>> measured([Place("n_rows", "layer_00", "cls"), Place("isoscore", "layer_00", "cls")])
    ['isoscore']
    """
    metrics = {place.metric for place in places}
    return sorted(m for m in metrics if not is_aside(m) and "_index_" not in m)


def ranked(metrics: Iterable[str]) -> list[str]:
    """Metrics in the order in which readings are listed, then those that are not.

    >>> ranked(["mine", "partition", "lid_value", "isoscore"])
    ['isoscore', 'partition', 'lid_value', 'mine']
    """
    order = {name: place for place, name in enumerate(READINGS)}
    return sorted(metrics, key=lambda metric: (order.get(base_of(metric), len(order)), metric))


def headline(result: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """The values that a page shows first: those that the record of a run names, or the first two.

    >>> headline({"headline": ["lid_value"]}, ["isoscore", "lid_sd", "lid_value"])
    ['lid_value']
    >>> headline({}, ["lid_value", "partition", "isoscore"])
    ['isoscore', 'partition']
    """
    named = [name for name in result.get("headline") or () if name in metrics]
    return named or ranked(metrics)[:2]


def layers_of(places: Iterable[Place], view: str) -> list[str]:
    """The layers that have a view, from the lowest.

    >>> layers_of([Place("lid", "layer_02", "cls"), Place("lid", "pooled", "after")], "cls")
    ['layer_02']
    """
    return sorted({p.where for p in places if p.view == view and view in VIEWS})


def sites_of(places: Iterable[Place]) -> list[str]:
    """The sites, in order: those with an isotropy layer have `before` and `after`.

    >>> sites_of([Place("lid", "layer_02", "cls"), Place("lid", "pooled", "after")])
    ['pooled']
    """
    return sorted({p.where for p in places if p.view not in VIEWS})


def n_rows(rows: Rows, places: Iterable[Place]) -> str:
    """How many rows some places were measured on, as text; empty where it was not logged.

    >>> row = {"step": 0, "isotropy/n_rows/layer_00/cls": 1277, "isotropy/n_rows/layer_01/cls": 9}
    >>> n_rows([row], [Place("lid", "layer_00", "cls"), Place("lid", "layer_01", "cls")])
    'N = 9 to 1,277'
    """
    keys = {place._replace(metric=COUNTS[0]).key for place in places}
    counts = {
        int(row[key]) for row in rows for key in keys if not math.isnan(row.get(key, math.nan))
    }
    return (
        "N = " + " to ".join(f"{n:,}" for n in sorted({min(counts), max(counts)})) if counts else ""
    )


def by_n(places: Mapping[Place, Series]) -> dict[int, list[Place]]:
    """The clouds of the places, as places of `n_rows`, by their newest N, fewest rows first.

    >>> by_n({Place("n_rows", "layer_00", "cls"): [(0, 640.0)]})
    {640: [Place(metric='n_rows', where='layer_00', view='cls', rows='isotropy')]}
    """
    found: dict[int, list[Place]] = {}
    for place, values in places.items():
        known = [int(value) for _, value in values if math.isfinite(value)]
        if place.metric == COUNTS[0] and known:
            found.setdefault(known[-1], []).append(place)
    return dict(sorted(found.items()))


def gaussian_isoscore(places: Mapping[Place, Series], width: int) -> str:
    """What IsoScore perfectly isotropic rows have by their number alone, in a sentence.

    It is about N/(N + D) for a Gaussian cloud of N rows of `width` D.

    >>> gaussian_isoscore({Place("n_rows", "layer_00", "cls"): [(0, 640.0)]}, 384)
    'Perfectly isotropic Gaussian rows have an IsoScore of about 0.625 at N = 640 (D = 384).'
    """
    sizes = [n for n in by_n(places) if n]
    ends = sizes if len(sizes) <= MOST_SIZES else [sizes[0], sizes[-1]]
    texts = " and ".join(f"{number(n / (n + width))} at N = {n:,}" for n in ends)
    what = f"Perfectly isotropic Gaussian rows have an IsoScore of about {texts} (D = {width:,})."
    return what if ends else ""


def chance(places: Mapping[Place, Series], place: Place, step: float) -> str:
    """What chance gives the metric of a place at a step, as a range; or nothing.

    Two digits of the larger end, and as many decimals of the other.

    >>> chance({}, Place("isoscore", "layer_00", "cls"), 0)
    ''
    """
    low, high = (
        places.get(place._replace(metric=f"{place.metric}_null_{end}")) for end in ("low", "high")
    )
    if not (low and high):
        return ""
    ends = at(low, step), at(high, step)
    largest = max((abs(end) for end in ends if math.isfinite(end)), default=0.0)
    digits = max(0, 1 - math.floor(math.log10(largest))) if largest else 0
    return "…".join(minus(f"{end:.{digits}f}") for end in ends)


def number(value: float) -> str:
    """A value as it is printed: three digits, whole numbers as they are, a dash for none.

    >>> [number(v) for v in (0.61, -12.345, 0.06, 8.77e-5, 1234.5, 24.0, float("nan"))]
    ['0.610', '−12.3', '0.0600', '8.77·10⁻⁵', '1,234', '24', '–']
    """
    if not math.isfinite(value):
        return "–"
    if value == int(value) or abs(value) >= 1000:
        return minus(f"{value:,.0f}")
    digits, _, exponent = f"{value:#.3g}".partition("e")
    return minus(digits) + (f"·10{superscript(int(exponent))}" if exponent else "")


def superscript(number: int) -> str:
    """A whole number as an exponent.

    >>> superscript(-12)
    '⁻¹²'
    """
    return str(number).translate(SUPERSCRIPTS)


def minus(text: str) -> str:
    """A number as text, with the sign of print.

    >>> minus("-0.5")
    '−0.5'
    """
    return text.replace("-", "−")
