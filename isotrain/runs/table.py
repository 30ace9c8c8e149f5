"""All measurements of a run as one table: one line per isotropy value."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from isotrain.runs.keys import DEV, CurveKey, is_aside, parse_key


class Measured(NamedTuple):
    """One isotropy value, with N and its null range."""

    step: int
    rows: str  # dev | train
    layer: str  # layer_03, or a site
    view: str
    metric: str
    value: float
    n_rows: int
    null_low: float  # what chance gives, where that is known; else NaN
    null_high: float


def table(records: Iterable[Mapping[str, float]]) -> list[Measured]:
    """Every isotropy value of some records, in the order of steps.

    Where a step was measured twice (after a resume) the last value counts. Counts of embeddings and
    null values are columns, not lines.

    >>> row = {"step": 5, "isotropy/lid/pooled/after": 2.0, "isotropy/n_rows/pooled/after": 9}
    >>> table([row])[0][:7]
    (5, 'dev', 'pooled', 'after', 'lid', 2.0, 9)
    """
    merged: dict[tuple[int, CurveKey], float] = {}
    for record in records:
        for key, value in record.items():
            if curve := parse_key(key):
                merged[int(record["step"]), curve] = value
    lines = []
    for (step, curve), value in merged.items():
        if is_aside(curve.metric):
            continue

        def value_of(metric: str, step: int = step, curve: CurveKey = curve) -> float:
            return merged.get((step, curve._replace(metric=metric)), math.nan)

        n_rows = value_of("n_rows")
        lines.append(
            Measured(
                step,
                "dev" if curve.rows == DEV else "train",
                curve.where,
                curve.view,
                curve.metric,
                value,
                0 if math.isnan(n_rows) else int(n_rows),
                value_of(f"{curve.metric}_null_low"),
                value_of(f"{curve.metric}_null_high"),
            )
        )
    return sorted(lines, key=lambda line: line[:5])
