"""What a run shows, in a few sentences with their numbers, and what to be careful about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from isotrain.keys import VIEWS, Place
from isotrain.pages.panels import TITLES
from isotrain.pages.readings import label
from isotrain.pages.rows import (
    Rows,
    headline,
    isotropy_places,
    layers_of,
    measured,
    number,
    series,
    sites_of,
)

CAUTION = (
    "One run with one seed: this describes the run and shows no effect of anything. An effect "
    "takes several seeds against a baseline (isotrain study run)."
)
FEW_ROWS = 1000  # below, isotropy and scores are told to be read with care


def sentences(result: Mapping[str, Any], rows: Rows) -> list[str]:
    """What happened to the score, to the isotropy of the last layer, and at the isotropy layers."""
    places = isotropy_places(rows)
    shown = headline(result, measured(places))
    found = [_score(result, rows)]
    if shown:
        found.append(_last_layer(result, places, shown[0]))
        found += [_around(result, places, shown[0], site) for site in sites_of(places)]
    return [sentence for sentence in found if sentence]


def faults(result: Mapping[str, Any]) -> list[str]:
    """What makes a run no whole one: it has not finished, or it collapsed.

    >>> faults({"status": "finished", "degenerate": True, "degenerate_reason": "one class"})
    ['The run is degenerate: one class.']
    """
    found = []
    status = result.get("status", "unknown")
    if status != "finished":
        error = f": {result['error']}" if result.get("error") else ""
        found.append(f"The run is not finished ({status}{error}). Last values are the last logged.")
    if result.get("degenerate"):
        found.append(f"The run is degenerate: {result.get('degenerate_reason')}.")
    return found


def warnings(result: Mapping[str, Any], rows: Rows) -> list[str]:
    """What a reader of the numbers has to know."""
    places = isotropy_places(rows)
    found = [*faults(result), CAUTION]
    lost = [p for p in places if p.metric == "n_rows_not_finite" and any(v for _, v in places[p])]
    if lost:
        clouds = ", ".join(sorted({f"{p.where}/{p.view}" for p in lost}))
        found.append(f"Rows that are not finite were left out of {clouds}.")
    broken = sorted({k for row in rows for k, v in row.items() if isinstance(v, float) and v != v})
    if broken:
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        found.append(f"Not a number at some step: {', '.join(broken[:5])}{more}.")
    if result.get("select") == "best":
        found.append(
            f"The weights are those of step {result.get('selected_step')}, the best of "
            f"{result.get('n_evaluations')} evaluations on dev: the dev score is optimistic, the "
            "test score is not."
        )
    if result.get("select") == "holdout":
        found.append(
            f"The weights are those of step {result.get('selected_step')}, the best of "
            f"{result.get('n_evaluations')} evaluations on held-out training rows."
        )
    if result.get("stopped_by_patience"):
        found.append(f"Training stopped after step {result.get('steps')} by training.patience.")
    if (share := _limit(result)) is not None:
        found.append(f"Only a part of dev was evaluated (trainer.limit_val_batches = {share}).")
    n_dev = n_evaluated(result, rows, "val")
    if 0 < n_dev < FEW_ROWS:
        found.append(f"Dev has {n_dev:,} rows: a difference of one or two points is within chance.")
    fewest = {p: v for p in places if p.metric == "n_rows" and (v := places[p][-1][1]) < FEW_ROWS}
    if fewest:
        n = min(fewest.values())
        views = ", ".join(dict.fromkeys(TITLES.get(p.view, f"{p.where} {p.view}") for p in fewest))
        found.append(
            f"Some clouds have few rows (N = {n:,.0f} at least; {views}): IsoScore and ranks read "
            "low where N is not far above the hidden size D; the corrected IsoScore does not."
        )
    if not places:
        found.append("No isotropy was measured in this run.")
    return found


def binomial_error(share: float, n: int) -> float:
    """The standard error √(p(1 − p)/N) of an accuracy p over N rows.

    >>> binomial_error(0.5, 100)
    0.05
    """
    return math.sqrt(share * (1 - share) / n)


def n_evaluated(result: Mapping[str, Any], rows: Rows, stage: str) -> int:
    """Rows behind a score: those that were logged as evaluated, else those that the data have.

    >>> n_evaluated({"n_rows": {"dev": 277}}, [], "val")
    277
    """
    values = series(rows, f"{stage}/n_rows")
    split = "dev" if stage == "val" else stage
    return int(values[-1][1] if values else (result.get("n_rows") or {}).get(split, 0))


def last_value(result: Mapping[str, Any], key: str, values: Sequence[tuple[float, float]]) -> float:
    """The recorded value of the weights that a run ended with; else the last that was logged."""
    return float(result.get("scores", {}).get(key, values[-1][1] if values else math.nan))


def _score(result: Mapping[str, Any], rows: Rows) -> str:
    key = result.get("monitor", "")
    values = series(rows, key)
    if not values:
        return "No score was evaluated."
    name, n = key.removeprefix("val/"), n_evaluated(result, rows, "val")
    last = last_value(result, key, values)
    step = result.get("selected_step", values[-1][0])
    size = f"N = {n:,}" if n else ""
    if name == "accuracy" and n and 0 <= last <= 1:
        error = binomial_error(last, n)
        size += f", binomial standard error {error:.3f}"
        if len(values) > 1 and abs(last - values[0][1]) < 2 * error:
            size += "; the change is less than two of them"
    size = f" ({size})" if size else ""
    if len(values) > 1:
        text = (
            f"{name.capitalize()} on dev {_moved(values[0][1], last)} from step {values[0][0]:g} "
            f"to step {step:g}{size}"
        )
    else:
        text = f"{name.capitalize()} on dev is {number(last)} at step {values[0][0]:g}{size}"
    test = result.get("scores", {}).get(key.replace("val/", "test/"))
    n_test = n_evaluated(result, rows, "test")
    on_test = f"; on test it is {number(test)} (N = {n_test:,})" if test is not None else ""
    return f"{text}{on_test}."


def _last_layer(result: Mapping[str, Any], places: Mapping[Place, Any], metric: str) -> str:
    """Of every view of the last layer."""
    parts = []
    top = ""
    for view in VIEWS:
        names = layers_of((p for p in places if p.metric == metric), view)
        if names:
            top = names[-1]
            text = _ends(result, places, Place(metric, top, view))
            parts.append(f"{TITLES[view]} {text}")
    return f"{label(metric)} at the last layer ({top}): {'; '.join(parts)}." if parts else ""


def _around(result: Mapping[str, Any], places: Mapping[Place, Any], metric: str, site: str) -> str:
    before, after = (Place(metric, site, side) for side in ("before", "after"))
    if after not in places:
        return ""
    if before not in places:
        return f"What the head reads ({site}, no isotropy layer): {_ends(result, places, after)}."
    ends = [last_value(result, p.key, places[p]) for p in (before, after)]
    n = _n(places, after)
    return (
        f"The isotropy layer at {site} changes it from {number(ends[0])} before to "
        f"{number(ends[1])} after, on the same rows at the end{n}."
    )


def _ends(result: Mapping[str, Any], places: Mapping[Place, Any], place: Place) -> str:
    values = places[place]
    last = number(last_value(result, place.key, values))
    first = f"{number(values[0][1])} → " if len(values) > 1 else ""
    return f"{first}{last}{_n(places, place)}"


def _n(places: Mapping[Place, Any], place: Place) -> str:
    counts = places.get(place._replace(metric="n_rows"))
    return f" (N = {int(counts[-1][1]):,})" if counts else ""


def _moved(first: float, last: float) -> str:
    verb = "rose" if last > first else "fell" if last < first else "stayed"
    ends = f"from {number(first)} to {number(last)}" if last != first else f"at {number(last)}"
    return f"went from {number(first)} to {number(last)}" if last != last else f"{verb} {ends}"


def _limit(result: Mapping[str, Any]) -> Any:
    limit = ((result.get("config") or {}).get("trainer") or {}).get("limit_val_batches")
    return None if limit in (None, 1.0) else limit
