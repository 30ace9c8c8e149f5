"""Logged records as series, the input of tables and figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from isotrain.runs.keys import COUNTS, DEV, VIEWS, CurveKey, is_aside, parse_key
from isotrain.runs.numbers import minus, size_range

Series = list[tuple[float, float]]  # (step, value)
Rows = Sequence[dict[str, float]]


def series(rows: Rows, key: str) -> Series:
    """(step, value) of every record with `key`, in order; the last value of a step counts."""
    by_step = {row["step"]: row[key] for row in rows if key in row}
    return sorted(by_step.items())


class End(NamedTuple):
    """The evaluation that provides the final values."""

    step: int
    is_kept: bool  # of the selected weights, while later ones were evaluated too

    @property
    def name(self) -> str:
        """The step, and the reason if it is not the last one.

        >>> End(20, False).name, End(20, True).name
        ('step 20', 'kept weights (step 20)')
        """
        return f"kept weights (step {self.step})" if self.is_kept else f"step {self.step}"


def end_of(result: Mapping[str, Any], rows: Rows) -> End:
    """The evaluation of the weights that a run selected; by default the last one.

    >>> rows = [{"step": step, "val/loss": 0.5} for step in (0, 20, 40)]
    >>> end_of({}, rows), end_of({"selected_step": 20}, rows)
    (End(step=40, is_kept=False), End(step=20, is_kept=True))
    """
    prefixes = ("val/", f"{DEV}/")
    steps = {int(row["step"]) for row in rows if any(key.startswith(prefixes) for key in row)}
    last, best = max(steps, default=result.get("steps", 0)), result.get("selected_step")
    return End(best, True) if best in steps and best < last else End(last, False)


def at(values: Series, step: float) -> float:
    """The value at a step; NaN if there is none.

    >>> at([(0, 0.5), (20, 0.75)], 20), at([(0, 0.5)], 20)
    (0.75, nan)
    """
    return dict(values).get(step, math.nan)


def isotropy_series(rows: Rows, metric: str = "", source: str = DEV) -> dict[CurveKey, Series]:
    """Every isotropy series by key, or those of one metric."""
    start = f"{source}/{metric}/" if metric else f"{source}/"
    keys = sorted({key for row in rows for key in row if key.startswith(start)})
    return {curve: series(rows, key) for key in keys if (curve := parse_key(key))}


def measured(curves: Iterable[CurveKey]) -> list[str]:
    """The metrics among some curves, without counts, nulls of other metrics and indices."""
    metrics = {curve.metric for curve in curves}
    return sorted(m for m in metrics if not is_aside(m) and "_index_" not in m)


def headline(result: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Headline metrics of a page: those in the run's record, or the first two."""
    names = [name for name in result.get("headline") or () if name in metrics]
    return names or list(metrics)[:2]


def layers_of(curves: Iterable[CurveKey], view: str) -> list[str]:
    """The layers with a view, lowest first."""
    return sorted({curve.where for curve in curves if curve.view == view and view in VIEWS})


def sites_of(curves: Iterable[CurveKey]) -> list[str]:
    """The sites, in order: those with an isotropy layer have `before` and `after`."""
    return sorted({curve.where for curve in curves if curve.view not in VIEWS})


def n_rows(curves: Mapping[CurveKey, Series], view: str) -> str:
    """Number of embeddings behind the curves of a view, as text; empty if not logged."""
    counts = [values for c, values in curves.items() if (c.metric, c.view) == (COUNTS[0], view)]
    return size_range({int(n) for values in counts for _, n in values if math.isfinite(n)})


def by_n(curves: Mapping[CurveKey, Series]) -> dict[int, list[CurveKey]]:
    """The clouds of the curves, as keys of `n_rows`, grouped by latest N, smallest first."""
    groups: dict[int, list[CurveKey]] = {}
    for curve, values in curves.items():
        counts = [int(value) for _, value in values if math.isfinite(value)]
        if curve.metric == COUNTS[0] and counts:
            groups.setdefault(counts[-1], []).append(curve)
    return dict(sorted(groups.items()))


def chance(curves: Mapping[CurveKey, Series], curve: CurveKey, step: float) -> str:
    """Null range of a metric at a step, as text; empty without one.

    Two significant digits of the larger end; the other has as many decimals.

    >>> chance({}, CurveKey("isoscore", "layer_00", "cls"), 0)
    ''
    """
    low, high = (
        curves.get(curve._replace(metric=f"{curve.metric}_null_{end}")) for end in ("low", "high")
    )
    if not (low and high):
        return ""
    bounds = at(low, step), at(high, step)
    largest = max((abs(bound) for bound in bounds if math.isfinite(bound)), default=0.0)
    digits = max(0, 1 - math.floor(math.log10(largest))) if largest else 0
    return "…".join(minus(f"{bound:.{digits}f}") for bound in bounds)
