"""Answers to a reader's questions about a run, and what to look at next, as codes and numbers."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from isotrain.results.findings import Finding, finding, n_evaluated, unlike, warnings
from isotrain.results.readings import isotropic_value
from isotrain.results.series import (
    End,
    Rows,
    Series,
    at,
    end_of,
    headline,
    isotropy_series,
    layers_of,
    measured,
    series,
    sites_of,
)
from isotrain.results.statistics import accuracy_interval
from isotrain.runs.keys import VIEWS, CurveKey, on_test, shown_view

CONE = 0.9  # mean cosine above which embeddings nearly share one direction
SOME = 0.05  # share of a loss, or of the distance to isotropy, that counts as a change
MOST_STEPS = 4  # sentences on what to look at next
Levels = Mapping[str, tuple[str, float]]  # by score: name and value of a model-free baseline
Curves = Mapping[CurveKey, Series]
Pair = tuple[float, float]


class Score(NamedTuple):
    """The primary score of a run: on test if it was tested.

    Attributes:
        key: of the score.
        value: of the selected weights, of `n` examples.
        ends: of the 95 % CI of an accuracy.
        level: name and value of a model-free baseline.
        beside: above | below | not told apart from | beside, that baseline.
        dev: key on dev, where `first` and `last` are of.
        first: step and value of the first evaluation, if there are several.
    """

    key: str
    value: float
    n: int
    ends: Pair | None
    level: tuple[str, float] | None
    beside: str
    dev: str
    first: Pair | None
    last: float


class Change(NamedTuple):
    """Change of some metrics, from one cloud to another or through training.

    Attributes:
        where: the cloud or site.
        pairs: first and last value of each metric; equal steps have one value twice.
        moved: metrics by `more`, `less`, `as`: isotropic.
        n: embeddings; 0 where it is not known.
    """

    where: CurveKey
    pairs: dict[str, Pair]
    moved: dict[str, list[str]]
    n: int


class Answers(NamedTuple):
    """The answers at the top of a run's page.

    Attributes:
        score: None if nothing was evaluated.
        last_layer: through training, of the last layer; None if not measured.
        layers: input → output of each isotropy layer.
        heads: through training, what the head reads where there is no layer.
        end: the evaluation that gives the last values.
    """

    score: Score | None
    last_layer: Change | None
    layers: list[Change]
    heads: list[Change]
    end: End


def answers(result: Mapping[str, Any], rows: Rows, levels: Levels) -> Answers:
    """How the score, the last layer's isotropy, and the isotropy layers changed."""
    curves, end = isotropy_series(rows), end_of(result, rows)
    metrics, last = _of_isotropy(result, curves), None
    if tops := [top for metric in metrics if (top := last_layer(curves, metric))]:
        last = _change(curves, tops[0], {c.metric: _ends(curves[c], end) for c in tops})
    layers, heads = [], []
    for site in sites_of(c for c in curves if c.metric in metrics):
        after = CurveKey(metrics[0], site, "after")
        sides = {
            m: [curves.get(CurveKey(m, site, s)) for s in ("before", "after")] for m in metrics
        }
        in_out = {m: (at(b, end.step), at(a, end.step)) for m, (b, a) in sides.items() if a and b}
        head_pairs = {m: _ends(a, end) for m, (b, a) in sides.items() if a and not b}
        layers += [_change(curves, after, in_out)] if in_out else []
        heads += [_change(curves, after, head_pairs)] if head_pairs else []
    return Answers(_score(result, rows, end, levels), last, layers, heads, end)


def next_steps(result: Mapping[str, Any], rows: Rows, levels: Levels) -> list[Finding]:
    """Two to four things to look at next, most serious first; macros of `run.html`."""
    curves, end = isotropy_series(rows), end_of(result, rows)
    score, losses = _score(result, rows, end, levels), series(rows, "val/loss")
    findings: list[Finding] = []
    if score and score.level and score.beside in ("below", "not told apart from"):
        findings.append(finding("not_learned", beside=score.beside, level=score.level[0]))
    lowest = min(losses, key=lambda point: point[1], default=(0.0, 0.0))
    if losses and losses[-1][1] > (1 + SOME) * lowest[1] and not _rose(result, rows, lowest[0]):
        findings.append(finding("overfits", lowest=lowest, last=losses[-1][1]))
    cone = last_layer(curves, "mean_cosine")
    if cone and (cosine := at(curves[cone], end.step)) > CONE:
        findings.append(finding("cone", cosine=cosine))
    metrics = _of_isotropy(result, curves)
    for site in sites_of(curves):
        if subset := [m for m in metrics if _only_the_output(curves, m, site, end)]:
            findings.append(
                finding("only_the_output", site=site, by=subset if subset != metrics else [])
            )
    if unlike(result, rows):
        findings.append(finding("unlike"))
    shown = headline(result, measured(curves))
    if shown and (change := _most_changed(curves, shown[0], end)):
        curve, pair = change
        findings.append(finding("changed", **curve._asdict(), pair=pair))
    return [*findings[: MOST_STEPS - 1], finding("before_quoting", n=len(warnings(result, rows)))]


def _score(result: Mapping[str, Any], rows: Rows, end: End, levels: Levels) -> Score | None:
    dev = str(result.get("monitor", ""))
    values, test = series(rows, dev), on_test(dev)
    if not values:
        return None
    key, value, n = dev, at(values, end.step), n_evaluated(result, rows, "val")
    if (test_value := (result.get("scores") or {}).get(test)) is not None:
        key, value, n = test, test_value, n_evaluated(result, rows, "test")
    interval, level = accuracy_interval(key, value, n), levels.get(key)
    beside = "beside"
    if interval and level:
        not_below = "above" if interval[0] > level[1] else "not told apart from"
        beside = "below" if interval[1] < level[1] else not_below
    first = values[0] if len(values) > 1 else None
    return Score(key, value, n, interval, level, beside, dev, first, at(values, end.step))


def _rose(result: Mapping[str, Any], rows: Rows, since: float) -> bool:
    """Whether the dev score improved after a step."""
    scores = series(rows, str(result.get("monitor", "")))
    values = [value if result.get("mode") != "min" else -value for s, value in scores if s >= since]
    return len(values) > 1 and values[-1] > values[0]


def last_layer(curves: Curves, metric: str) -> CurveKey | None:
    """The tokens of the last layer, else its first view; None if not measured."""
    candidates = [curve for curve in curves if curve.metric == metric]
    view = shown_view({curve.view for curve in candidates})
    return CurveKey(metric, layers_of(candidates, view)[-1], view) if view else None


def _of_isotropy(result: Mapping[str, Any], curves: Curves) -> list[str]:
    """The headline metrics with one isotropic value; without any, the first."""
    shown = headline(result, measured(curves))
    return [name for name in shown if isotropic_value(name) is not None] or shown[:1]


def _ends(values: Series, end: End) -> Pair:
    """First and last value; the same value twice if there is one evaluation."""
    return values[0][1], at(values, end.step)


def _change(curves: Curves, where: CurveKey, pairs: dict[str, Pair]) -> Change:
    counts = curves.get(where._replace(metric="n_rows"))
    return Change(where, pairs, moved(pairs), int(counts[-1][1]) if counts else 0)


def moved(pairs: Mapping[str, Pair]) -> dict[str, list[str]]:
    """Metrics by which the second of two clouds is more, less, or about as isotropic.

    Metrics without one isotropic value, or undefined in a cloud, do not count; nothing moved where
    all values are equal.

    >>> moved({"isoscore": (0.1, 0.4), "mean_cosine": (0.5, 0.1), "rankme": (2.0, 3.0)})
    {'more': ['isoscore', 'mean_cosine']}
    >>> moved({"isoscore": (0.1, 0.1), "mean_cosine": (0.1, 0.5)})
    {'less': ['mean_cosine'], 'as': ['isoscore']}
    """
    by_kind: dict[str, list[str]] = {"more": [], "less": [], "as": []}
    if all(before == after for before, after in pairs.values()):
        return {}
    for metric, values in pairs.items():
        goal = isotropic_value(metric)
        if goal is None or not math.isfinite(sum(values)):
            continue
        before, after = (abs(value - goal) for value in values)
        is_same = abs(after - before) <= SOME * max(before, after)
        by_kind["as" if is_same else "more" if after < before else "less"].append(metric)
    return {kind: metrics for kind, metrics in by_kind.items() if metrics}


def _only_the_output(curves: Curves, metric: str, site: str, end: End) -> bool:
    """Whether a layer halves the distance to isotropy, while training did not for its input."""
    goal = isotropic_value(metric)
    values = [curves.get(CurveKey(metric, site, side)) for side in ("before", "after")]
    if goal is None or not (values[0] and values[1]):
        return False
    start, before, after = (
        abs(value - goal)
        for value in (values[0][0][1], at(values[0], end.step), at(values[1], end.step))
    )
    return after < before / 2 and before > start / 2


def _most_changed(curves: Curves, metric: str, end: End) -> tuple[CurveKey, Pair] | None:
    """The layer whose value changed most, with its first and last value."""
    layer_curves = [c for c in curves if c.metric == metric and c.view in VIEWS]
    pairs = {c: _ends(curves[c], end) for c in layer_curves if len(curves[c]) > 1}
    pairs = {c: pair for c, pair in pairs.items() if math.isfinite(sum(pair))}
    return max(pairs.items(), key=lambda item: abs(item[1][1] - item[1][0]), default=None)
