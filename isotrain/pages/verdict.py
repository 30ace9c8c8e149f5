"""What a run shows, in a few sentences with their numbers, and what to be careful about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

from markupsafe import Markup

from isotrain.pages.readings import label, view_titles
from isotrain.pages.rows import (
    End,
    Rows,
    Series,
    at,
    by_n,
    end_of,
    gaussian_isoscore,
    headline,
    isotropy_series,
    layers_of,
    measured,
    number,
    series,
    sites_of,
)
from isotrain.runs.keys import VIEWS, CurveKey

CAUTION = (
    "One run with one seed: this describes the run and shows no effect of anything. An effect "
    "takes several seeds against a baseline (isotrain run)."
)
FEW_ROWS = 1000  # below, scores are told to be read with care
FAR = 2.0  # between the rows of a queue and those of dev, above which it is told
GAP, SPREAD = "/queue_gap", "/queue_spread"
FEW_OF_BATCH = 8  # examples of a batch, below which a queue reaches far back
FEW_OF_WIDTH = 10  # N over D below which isotropy is
Z = NormalDist().inv_cdf(0.975)


def sentences(result: Mapping[str, Any], rows: Rows) -> list[str]:
    """What happened to the score, to the isotropy of the last layer, and at the isotropy layers."""
    curves, end = isotropy_series(rows), end_of(result, rows)
    shown = headline(result, measured(curves))
    found = [_score(result, rows, end)]
    if shown:
        found.append(_last_layer(curves, shown[0], end, view_titles(result)))
        found += [_around(curves, shown[0], site, end) for site in sites_of(curves)]
    return [sentence for sentence in found if sentence]


def faults(result: Mapping[str, Any], rows: Rows = (), has_checkpoint: bool = False) -> list[str]:
    """What makes a run no whole one: it has not finished, or it collapsed.

    `has_checkpoint`: one to go on from.

    >>> faults({"status": "finished", "degenerate": True, "degenerate_reason": "one class"})
    ['The run is degenerate: one class.']
    """
    found = []
    status = result.get("status", "unknown")
    if status != "finished":
        error = f": {result['error']}" if result.get("error") else ""
        last = f"the last row is of step {rows[-1]['step']:.0f}" if rows else "nothing was logged"
        over = status in ("failed", "interrupted")
        same = "The same" if over else "If it is no longer at work, the same"
        again = (
            "goes on from the last checkpoint" if has_checkpoint else "starts it from the beginning"
        )
        found.append(
            f"The run is not finished ({status}{error}): {last}, and last values are those logged "
            f"last. {same} command {again}."
        )
    if result.get("degenerate"):
        found.append(f"The run is degenerate: {result.get('degenerate_reason')}.")
    return found


def warnings(result: Mapping[str, Any], rows: Rows) -> list[str]:
    """What a reader of the numbers has to know, beside `faults` and `CAUTION`."""
    curves = isotropy_series(rows)
    found = []
    lost = [p for p in curves if p.metric == "n_rows_not_finite" and any(v for _, v in curves[p])]
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
            f"{result.get('n_candidates')} evaluations on dev: the dev score is optimistic, the "
            "test score is not."
        )
    if result.get("select") == "holdout":
        found.append(
            f"The weights are those of step {result.get('selected_step')}, the best of "
            f"{result.get('n_candidates')} evaluations on held-out training rows."
        )
    if result.get("stopped_by_patience"):
        found.append(f"Training stopped after step {result.get('steps')} by training.patience.")
    for split, n in (result.get("limited_evaluation") or {}).items():
        part = f"{n['scored']:,} of the {n['of']:,} examples of {split}"
        found.append(f"Scores are of {part}: a fixed random subset (data.n_{split}).")
    found += [_unlike(layer, way_out(result)) for layer in unlike_training(result, rows)]
    n_dev = n_evaluated(result, rows, "val")
    if 0 < n_dev < FEW_ROWS:
        found.append(_chance_of_score(result, rows, n_dev))
    found += _few_rows(result, curves)
    if not curves:
        found.append("No isotropy was measured in this run.")
    return found


class Unlike(NamedTuple):
    """A layer whose queue has other rows than those it was last evaluated on."""

    site: str
    gap: float  # between their means, in rms distances of the evaluated rows
    spread: float  # of the queue, over that of the evaluated rows


def unlike_training(result: Mapping[str, Any], rows: Rows) -> list[Unlike]:
    """Isotropy layers with a gap above `FAR`, or a spread above `FAR` or below its inverse.

    >>> row = {"step": 9, "val/pooled/queue_gap": 8.27, "val/pooled/queue_spread": 62.5}
    >>> unlike_training({"steps": 9}, [row])
    [Unlike(site='pooled', gap=8.27, spread=62.5)]
    """
    end = end_of(result, rows).step
    found = []
    for site in sorted({key.split("/")[1] for row in rows for key in row if key.endswith(GAP)}):
        gap, spread = (at(series(rows, f"val/{site}{name}"), end) for name in (GAP, SPREAD))
        if gap > FAR or spread > FAR or spread < 1 / FAR:  # no NaN is
            found.append(Unlike(site, gap, spread))
    return found


def way_out(result: Mapping[str, Any]) -> str:
    """What makes a layer's queue like what it is evaluated on: a batch that fills it sooner first.

    >>> way_out({"config": {"data": {"batch_size": 1}}})[:60]
    'data.batch_size=1 fills the queue over many steps, in which '
    """
    n = ((result.get("config") or {}).get("data") or {}).get("batch_size", FEW_OF_BATCH)
    ways = "use statistics without dropout (isotropy.eval_stats=refit), or less dropout"
    if n >= FEW_OF_BATCH:
        return ways
    slow = f"data.batch_size={n} fills the queue over many steps, in which the encoder moves"
    return f"{slow}: raise it; else {ways}"


def _unlike(layer: Unlike, way: str) -> str:
    return (
        f"The layer at {layer.site} is frozen by other rows than those it is evaluated on: the "
        f"mean of its queue is {number(layer.gap)} rms distances from that of dev (0 = alike), its "
        f"spread {number(layer.spread)} times theirs (1 = alike). So its map does not fit "
        f"them, and what is measured behind it says little about it: {way}."
    )


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of an accuracy p over N rows, within [0, 1].

    (p + z²/2N ± z·√(p(1 − p)/N + z²/4N²)) / (1 + z²/N), z = 1.96.

    >>> [round(end, 4) for end in wilson(0.5, 96)], [round(end, 4) for end in wilson(0.0, 96)]
    ([0.4019, 0.5981], [0.0, 0.0385])
    """
    centre, half = (
        share + Z**2 / (2 * n),
        Z * math.sqrt(share * (1 - share) / n + Z**2 / (2 * n) ** 2),
    )
    low, high = ((centre + side * half) / (1 + Z**2 / n) for side in (-1, 1))
    return round(low, 12), round(high, 12)  # 0 and 1 without what rounding left of them


def n_evaluated(result: Mapping[str, Any], rows: Rows, stage: str) -> int:
    """Rows behind a score: those that were logged as evaluated, else those that the data have.

    >>> n_evaluated({"n_rows": {"dev": 277}}, [], "val")
    277
    """
    values = series(rows, f"{stage}/n_rows")
    split = "dev" if stage == "val" else stage
    return int(values[-1][1] if values else (result.get("n_rows") or {}).get(split, 0))


def _chance_of_score(result: Mapping[str, Any], rows: Rows, n: int) -> str:
    """How far few rows let a score be off; in points where it is an accuracy."""
    key = result.get("monitor", "")
    last = at(series(rows, key), end_of(result, rows).step)
    if not (key.endswith("accuracy") and 0 <= last <= 1):
        return f"Dev has {n:,} rows: small differences of the score are within chance."
    low, high = wilson(last, n)
    return (
        f"Dev has {n:,} rows: at an accuracy of {number(last)} a 95 % interval is "
        f"±\u00a0{50 * (high - low):.1f} points."
    )


def _few_rows(result: Mapping[str, Any], curves: Mapping[CurveKey, Series]) -> list[str]:
    """Which clouds have few rows for their width D; where D is not known, few at all."""
    width, titles = result.get("width"), view_titles(result)
    least = FEW_OF_WIDTH * width if width else FEW_ROWS
    texts = []
    for n, clouds in by_n(curves).items():
        names = dict.fromkeys(titles.get(p.view, f"site {p.where}") for p in clouds)
        if n < least:
            texts.append(f"N = {n:,} ({', '.join(names)})")
    if not texts:
        return []
    rule = f"N < {FEW_OF_WIDTH}·D = {least:,}" if width else f"N < {least:,}"
    text = (
        f"Isotropy was measured on few rows ({rule}): {'; '.join(texts)}. Some values are biased "
        "there: IsoScore and ranks read low where N is not far above the hidden size D, the "
        "corrected IsoScore does not."
    )
    return [f"{text} {gaussian_isoscore(curves, width)}" if width else text]


def _score(result: Mapping[str, Any], rows: Rows, end: End) -> str:
    key = result.get("monitor", "")
    values = series(rows, key)
    if not values:
        return "No score was evaluated."
    name, n = key.removeprefix("val/"), n_evaluated(result, rows, "val")
    last = at(values, end.step)
    size = f"N = {n:,}" if n else ""
    if name == "accuracy" and n and 0 <= last <= 1:
        low, high = map(number, wilson(last, n))
        size += f"; 95 % Wilson interval of the last value {low} to {high}"
    size = f" ({size})" if size else ""
    if len(values) > 1:
        text = (
            f"{name.capitalize()} on dev {_moved(values[0][1], last)} from step {values[0][0]:.0f} "
            f"to {_at(end)}{size}"
        )
    else:
        text = f"{name.capitalize()} on dev is {number(last)} at {end.name}{size}"
    test = result.get("scores", {}).get(key.replace("val/", "test/"))
    n_test = n_evaluated(result, rows, "test")
    on_test = f"; on test it is {number(test)} (N = {n_test:,})" if test is not None else ""
    return f"{text}{on_test}."


def _last_layer(
    curves: Mapping[CurveKey, Series], metric: str, end: End, titles: Mapping[str, str]
) -> str:
    """Of every view of the last layer."""
    parts = []
    top = ""
    for view in VIEWS:
        names = layers_of((p for p in curves if p.metric == metric), view)
        if names:
            top = names[-1]
            parts.append(f"{titles[view]} {_ends(curves, CurveKey(metric, top, view), end)}")
    text = Markup("{} <code>{}</code> at the last layer ({}): {}.")
    return text.format(label(metric), metric, top, "; ".join(parts)) if parts else ""


def _around(curves: Mapping[CurveKey, Series], metric: str, site: str, end: End) -> str:
    before, after = (CurveKey(metric, site, side) for side in ("before", "after"))
    if after not in curves:
        return ""
    if before not in curves:
        return f"What the head reads ({site}, no isotropy layer): {_ends(curves, after, end)}."
    ends = [number(at(curves[p], end.step)) for p in (before, after)]
    return (
        f"The isotropy layer at {site} changes it from {ends[0]} before to {ends[1]} after, on the "
        f"same rows at {_at(end)}{_n(curves, after)}."
    )


def _ends(curves: Mapping[CurveKey, Series], curve: CurveKey, end: End) -> str:
    (start, first), last = curves[curve][0], number(at(curves[curve], end.step))
    return (f"{number(first)} → " if start != end.step else "") + last + _n(curves, curve)


def _at(end: End) -> str:
    return f"the {end.name}" if end.is_kept else end.name


def _n(curves: Mapping[CurveKey, Series], curve: CurveKey) -> str:
    counts = curves.get(curve._replace(metric="n_rows"))
    return f" (N = {int(counts[-1][1]):,})" if counts else ""


def _moved(first: float, last: float) -> str:
    verb = "rose" if last > first else "fell" if last < first else "stayed"
    ends = f"from {number(first)} to {number(last)}" if last != first else f"at {number(last)}"
    return f"went from {number(first)} to {number(last)}" if last != last else f"{verb} {ends}"
