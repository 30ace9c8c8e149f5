"""Isotropy of every layer and site over steps, as data for the page's script."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from isotrain.pages.panels import layer_number
from isotrain.results.readings import base_of, label, readings, view_titles
from isotrain.results.series import (
    Rows,
    Series,
    isotropy_series,
    layers_of,
    measured,
    n_rows,
    sites_of,
)
from isotrain.runs.keys import TRAINING, VIEWS, CurveKey

NUMBERED = ("_2", "_3")  # parts that have a table alone
Curves = Mapping[CurveKey, Series]


def isotropy_data(
    result: Mapping[str, Any], rows: Rows, curves: Curves, shown: Sequence[str]
) -> list[dict[str, Any]]:
    """Every value that was measured, those `shown` first, then those of training batches.

    Each has `title`, `reading`, `steps`, `views` (the tokens first; `values` of layers × steps) and
    `sites` (`before`, `after`, and the `low` and `high` ends of what chance gives); None is no
    finite value.
    """
    titles = view_titles(result)
    in_training = isotropy_series(rows, source=TRAINING)
    found = []
    for of_source, note in ((curves, ""), (in_training, ", training batches")):
        names = [m for m in measured(of_source) if not m.endswith(NUMBERED)]
        first = [metric for metric in shown if metric in names]
        for metric in dict.fromkeys([*first, *names]):
            own = {p: values for p, values in of_source.items() if p.metric == metric}
            reading = readings().get(base_of(metric))
            steps = sorted({step for values in own.values() for step, _ in values})
            found.append(
                {
                    "title": label(metric) + note,
                    "reading": reading.text if reading else "",
                    "steps": steps,
                    "views": [
                        _view(rows, own, view, titles[view], steps)
                        for view in sorted(VIEWS, key=lambda view: view != "tokens")
                        if layers_of(own, view)
                    ],
                    "sites": [_site(of_source, own, site, steps) for site in sites_of(own)],
                }
            )
    return found


def _view(rows: Rows, own: Curves, view: str, title: str, steps: Sequence[float]) -> dict[str, Any]:
    names = layers_of(own, view)
    curves = [p for p in own if p.view == view]
    return {
        "title": title,
        "n": n_rows(rows, curves),
        "layers": [layer_number(name) for name in names],
        "values": [
            _values(next(own[p] for p in curves if p.where == name), steps) for name in names
        ],
    }


def _site(curves: Curves, own: Curves, site: str, steps: Sequence[float]) -> dict[str, Any]:
    sides = {p.view: p for p in own if p.where == site}
    found: dict[str, Any] = {"name": site}
    found |= {side: _values(own[p], steps) for side, p in sides.items()}
    after = sides["after"]
    for end in ("low", "high"):
        if null := curves.get(after._replace(metric=f"{after.metric}_null_{end}")):
            found[end] = _values(null, steps)
    return found


def _values(values: Series, steps: Sequence[float]) -> list[float | None]:
    """The value at each step with four digits."""
    known = dict(values)
    found = (known.get(step, math.nan) for step in steps)
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in found]
