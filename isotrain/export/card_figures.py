"""The tables of a model card: scores with intervals over rows, isotropy around the layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from isotrain.export.source_run import SourceRun
from isotrain.reporting.row_bootstrap import SCORES, row_interval
from isotrain.runs.files import read_records
from isotrain.runs.keys import SIDES, parse_key
from isotrain.runs.predictions import Predictions, read_predictions

SPLITS = {"val": "dev", "test": "test"}  # as keys name them, and as files do


class Scored(NamedTuple):
    """One score of a run."""

    split: str  # dev | test
    name: str
    value: float
    low: float | None  # of the 95 % interval over rows; None where there is none
    high: float | None
    n_rows: int
    note: str  # why there is no interval


def scored(run: SourceRun, names: Collection[str]) -> list[Scored]:
    """The scores of some names on dev and test, the monitored one first in each."""
    monitored = str(run.result["monitor"]).rpartition("/")[2]
    found = []
    for key, value in run.result["scores"].items():
        stage, _, name = key.partition("/")
        if stage in SPLITS and name in names:
            found.append(_scored(run, SPLITS[stage], name, float(value)))
    return sorted(found, key=lambda one: (one.split, one.name != monitored, one.name))


def _scored(run: SourceRun, split: str, name: str, value: float) -> Scored:
    n_rows = int(run.result["n_rows"].get(split, 0))
    bare = Scored(split, name, value, None, None, n_rows, "")
    kept = read_predictions(run.folder, split)
    if kept is None or name not in SCORES:
        what = "no predictions are kept" if kept is None else "no resampling is known for it"
        return bare._replace(note=what)
    try:
        low, high = _interval(kept, name)
    except ValueError as error:
        return bare._replace(note=str(error).partition(";")[0])
    return bare._replace(low=low, high=high, n_rows=len(kept.index))


def _interval(kept: Predictions, name: str) -> tuple[float | None, float | None]:
    """Of the difference to perfect predictions, whose score is 1 in any resample of rows."""
    found = row_interval([kept.prediction], [kept.label], kept.label, SCORES[name])
    if found.low is None or found.high is None:
        return None, None
    return 1 + found.low, min(1.0, 1 + found.high)


class Figures(NamedTuple):
    """What the card tells of the run's log."""

    scored: list[Scored]
    score_table: str
    isotropy_table: str


def figures_of(run: SourceRun, names: Collection[str], label: Callable[[str], str]) -> Figures:
    """The scores of some names, and isotropy; `label` says how a metric is read."""
    found = scored(run, names)
    return Figures(found, score_table(found), isotropy_table(isotropy_around(run), label))


class Isotropy(NamedTuple):
    """A metric on the rows in front of a layer or behind it, at the first and last evaluation."""

    metric: str
    site: str
    side: str  # before | after
    first: float
    last: float
    steps: tuple[int, int]
    n_rows: int


def isotropy_around(run: SourceRun) -> list[Isotropy]:
    """The headline metrics at every site, by the log of the run."""
    wanted: Sequence[str] = run.result.get("headline") or ()
    series: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row in read_records(run.folder / "metrics.jsonl"):
        for key, value in row.items():
            curve = parse_key(key)
            if curve is not None and key.startswith("isotropy/") and curve.view in SIDES:
                at = (curve.metric, curve.where, curve.view)
                series.setdefault(at, []).append((int(row["step"]), value))
    found = []
    for (metric, site, side), values in series.items():
        if metric in wanted:
            (start, first), (end, last) = values[0], values[-1]
            sizes = series.get(("n_rows", site, side), [(0, math.nan)])
            n_rows = 0 if math.isnan(sizes[-1][1]) else int(sizes[-1][1])
            found.append(Isotropy(metric, site, side, first, last, (start, end), n_rows))
    return sorted(found, key=lambda one: (one.site, wanted.index(one.metric), one.side != "before"))


def score_table(found: Sequence[Scored]) -> str:
    """The scores as a markdown table."""
    head = "| split | score | value | 95 % interval over rows | N |"
    lines = [head, "| --- | --- | --- | --- | --- |"]
    for one in found:
        interval = one.note or "no row differs from another"
        if one.low is not None:
            interval = f"{one.low:.4f} to {one.high:.4f}"
        lines.append(
            f"| {one.split} | {one.name} | {one.value:.4f} | {interval} | {one.n_rows:,} |"
        )
    return "\n".join(lines)


def isotropy_table(found: Sequence[Isotropy], label: Callable[[str], str]) -> str:
    """The isotropy as a markdown table; `label` says how a metric is read."""
    if not found:
        return "The run measured none."
    steps = sorted({one.steps for one in found})[-1]
    lines = [
        f"| site | metric | rows | step {steps[0]} | step {steps[1]} | N |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        cells = (one.site, label(one.metric), f"{one.side} the layer")
        values = (f"{one.first:.4g}", f"{one.last:.4g}", f"{one.n_rows:,}")
        lines.append(f"| {' | '.join((*cells, *values))} |")
    return "\n".join(lines)
