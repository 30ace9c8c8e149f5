"""Summary of a run: answers to a reader's questions, and what to look at next."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from isotrain.pages.limitations import n_evaluated, unlike_texts, warnings
from isotrain.results.levels import CHANCE
from isotrain.results.numbers import number, score_number
from isotrain.results.readings import isotropic_value, label, view_titles
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
from isotrain.results.words import score_name
from isotrain.runs.keys import VIEWS, CurveKey, on_test, shown_view

CAUTION = (
    "One run with one seed shows no effect of anything: that takes several seeds against a "
    "baseline (isotrain run)."
)
CONE = 0.9  # mean cosine above which embeddings nearly share one direction
SOME = 0.05  # share of a loss, or of the distance to isotropy, that counts as a change
NOT_APART = "not told apart from"
MOST_STEPS = 4  # sentences on what to look at next
Levels = Mapping[str, tuple[str, float]]  # by score: name and value of a model-free baseline
Curves = Mapping[CurveKey, Series]


class Answer(NamedTuple):
    """A reader's question and its answer."""

    question: str
    text: str


def answers(result: Mapping[str, Any], rows: Rows, levels: Levels) -> list[Answer]:
    """How the score, the last layer's isotropy, and the isotropy layers changed."""
    curves, end = isotropy_series(rows), end_of(result, rows)
    found = [Answer("Did it learn the task?", _score(result, rows, end, levels))]
    metrics = _of_isotropy(result, curves)
    if tops := [top for metric in metrics if (top := last_layer(curves, metric))]:
        pairs = {p.metric: (curves[p][0][1], at(curves[p], end.step)) for p in tops}
        moved = _direction(pairs) if any(len(curves[p]) > 1 for p in tops) else Markup()
        where = f" of {view_titles(result)[tops[0].view]}, last layer ({tops[0].where})"
        text = Markup("{}. ").format(moved[:1].upper() + moved[1:]) if moved else Markup()
        text += Markup("; ").join(
            Markup("{} <code>{}</code>{}: {}").format(
                label(top.metric),
                top.metric,
                where if top == tops[0] else "",
                _ends(curves, top, end),
            )
            for top in tops
        )
        text += f"{_n(curves, tops[0])}."
        found.append(Answer("Are its embeddings more isotropic?", text))
    found += _around(curves, metrics, end)
    return found


def next_steps(result: Mapping[str, Any], rows: Rows, levels: Levels) -> list[Markup]:
    """Two to four sentences on what to look at next, most serious first; links open a section."""
    curves, end = isotropy_series(rows), end_of(result, rows)
    scores = series(rows, str(result.get("monitor", "")))
    losses = series(rows, "val/loss")
    found: list[Markup] = []
    if (beside := _versus(result, rows, end, levels)) in ("below", NOT_APART):
        text = "The score is {} {}: see whether the training loss falls. If not, change "
        text += "<code>optimizer.lr</code>; if it does, train longer."
        found.append(Markup(text).format(beside, _the(levels[_final(result, rows, end)[0]][0])))
    lowest = min(losses, key=lambda point: point[1], default=(0.0, 0.0))
    if losses and losses[-1][1] > (1 + SOME) * lowest[1] and not _rose(result, scores, lowest[0]):
        text = "Loss on dev rises from {} (step {:.0f}) to {} while the score does not improve: "
        text += "it overfits. <code>training.select=best</code> keeps the best evaluation."
        found.append(Markup(text).format(number(lowest[1]), lowest[0], number(losses[-1][1])))
    shown = headline(result, measured(curves))
    cone = last_layer(curves, "mean_cosine")
    if cone and at(curves[cone], end.step) > CONE:
        text = "Embeddings of the last layer point in nearly one direction (mean cosine {}): "
        text += 'see where that begins in <a href="#values">all values</a>.'
        found.append(Markup(text).format(number(at(curves[cone], end.step))))
    metrics = _of_isotropy(result, curves)
    for site in sites_of(curves):
        if only := [m for m in metrics if _only_the_output(curves, m, site, end)]:
            text = "At {} the isotropy layer makes its output isotropic{}, and its input has not "
            text += "become so: the encoder below is as it was. Compare its "
            text += '<a href="#values">layers</a>.'
            by = Markup(" by {}").format(_codes(only)) if only != metrics else ""
            found.append(Markup(text).format(site, by))
    if unlike_texts(result, rows):
        text = "An isotropy layer was frozen on embeddings unlike those of dev: see the "
        found.append(Markup(text + '<a href="#limitations">limitations</a>.'))
    if shown and (most := _most_changed(curves, shown[0], end)):
        curve, (first, last) = most
        text = "{}, {}, changed most, from {} to {}: follow it in the heat map, and every metric "
        text += 'in <a href="#values">all values</a>.'
        where = curve.where, view_titles(result)[curve.view]
        found.append(Markup(text).format(*where, number(first), number(last)))
    found = found[: MOST_STEPS - 1]
    n = len(warnings(result, rows))
    text = 'Before quoting a number, read its {} <a href="#limitations">limitation{}</a>. {}'
    return [*found, Markup(text).format(n, "s" * (n != 1), CAUTION) if n else Markup(CAUTION)]


def _score(result: Mapping[str, Any], rows: Rows, end: End, levels: Levels) -> str:
    """Headline: the test score, else dev, its CI, the model-free baseline, the change on dev."""
    values = series(rows, str(result.get("monitor", "")))
    if not values:
        return "No score was evaluated."
    key, value, n = _final(result, rows, end)
    ends = accuracy_interval(key, value, n)
    known = [f"N = {n:,}"] if n else []
    if ends:
        known.insert(0, "95 % CI {} to {}".format(*(score_number(e, key) for e in ends)))
    name = score_name(key)
    text = Markup("<strong>{}{} {}</strong>").format(
        name[0].upper(), name[1:], score_number(value, key)
    )
    text += f" ({', '.join(known)})" if known else ""
    if level := levels.get(key):
        beside = _versus(result, rows, end, levels)
        text += f", {beside} {_the(level[0])} ({score_number(level[1], key)})"
    dev = str(result["monitor"])
    first, last = values[0][1], at(values, end.step)
    if len(values) > 1:
        ends_of = f"{score_number(first, dev)} to {score_number(last, dev)}"
        text += f". On dev from {ends_of}, step {values[0][0]:.0f} to {_at(end)}"
    return text + "."


def _final(result: Mapping[str, Any], rows: Rows, end: End) -> tuple[str, float, int]:
    """The primary score of a run: key, value and N; on test if it was tested."""
    dev = str(result.get("monitor", ""))
    test = on_test(dev)
    if (value := (result.get("scores") or {}).get(test)) is not None:
        return test, value, n_evaluated(result, rows, "test")
    return dev, at(series(rows, dev), end.step), n_evaluated(result, rows, "val")


def _the(level: str) -> str:
    return level if level == CHANCE else f"the {level}"


def _versus(result: Mapping[str, Any], rows: Rows, end: End, levels: Levels) -> str:
    """Comparison of the score with the model-free baseline, if it has an interval."""
    key, value, n = _final(result, rows, end)
    ends, level = accuracy_interval(key, value, n), levels.get(key)
    if not (ends and level):
        return "beside"
    return "above" if ends[0] > level[1] else "below" if ends[1] < level[1] else NOT_APART


def _rose(result: Mapping[str, Any], scores: Series, since: float) -> bool:
    """Whether the dev score improved after a step."""
    values = [value if result.get("mode") != "min" else -value for s, value in scores if s >= since]
    return len(values) > 1 and values[-1] > values[0]


def last_layer(curves: Curves, metric: str) -> CurveKey | None:
    """The tokens of the last layer, else its first view; None if not measured."""
    own = [p for p in curves if p.metric == metric]
    view = shown_view({p.view for p in own})
    return CurveKey(metric, layers_of(own, view)[-1], view) if view else None


def _of_isotropy(result: Mapping[str, Any], curves: Curves) -> list[str]:
    """The headline metrics with one isotropic value; without any, the first."""
    shown = headline(result, measured(curves))
    return [name for name in shown if isotropic_value(name) is not None] or shown[:1]


def _direction(pairs: Mapping[str, tuple[float, float]]) -> Markup:
    """Whether embeddings are more isotropic in the second of two clouds, by each metric.

    Metrics without one isotropic value, or undefined in a cloud, do not count; none: empty.

    >>> str(_direction({"isoscore": (0.1, 0.4), "mean_cosine": (0.5, 0.1)}))
    'more isotropic'
    >>> print(_direction({"isoscore": (0.1, 0.1), "mean_cosine": (0.1, 0.5)}).striptags())
    the measures disagree: less isotropic by mean_cosine, about as isotropic by isoscore
    """
    found: dict[str, list[str]] = {"more isotropic": [], "less isotropic": []}
    for metric, values in pairs.items():
        goal = isotropic_value(metric)
        if goal is None or not math.isfinite(sum(values)):
            continue
        before, after = (abs(value - goal) for value in values)
        same = abs(after - before) <= SOME * max(before, after)
        kind = "more isotropic" if after < before else "less isotropic"
        found.setdefault("about as isotropic" if same else kind, []).append(metric)
    texts = [
        Markup("{} by {}").format(kind, _codes(metrics))
        for kind, metrics in found.items()
        if metrics
    ]
    if len(texts) < 2:
        return Markup(next((kind for kind, metrics in found.items() if metrics), ""))
    return Markup("the measures disagree: ") + Markup(", ").join(texts)


def _codes(metrics: Iterable[str]) -> Markup:
    return Markup(" and ").join(Markup("<code>{}</code>").format(metric) for metric in metrics)


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


def _most_changed(
    curves: Curves, metric: str, end: End
) -> tuple[CurveKey, tuple[float, float]] | None:
    """The layer whose value changed most, with its first and last value."""
    of_layers = [p for p in curves if p.metric == metric and p.view in VIEWS]
    ends = {p: (curves[p][0][1], at(curves[p], end.step)) for p in of_layers}
    ends = {p: pair for p, pair in ends.items() if math.isfinite(sum(pair)) and len(curves[p]) > 1}
    return max(ends.items(), key=lambda item: abs(item[1][1] - item[1][0]), default=None)


def _around(curves: Curves, metrics: Sequence[str], end: End) -> list[Answer]:
    """How isotropy layers change their input, or the head's input without a layer."""
    layers: list[Markup] = []
    bare: list[Markup] = []
    for site in sites_of(p for p in curves if p.metric in metrics):
        pairs, inputs, outputs = {}, {}, {}
        for metric in metrics:
            before, after = (CurveKey(metric, site, side) for side in ("before", "after"))
            if before in curves:
                pair = pairs[metric] = at(curves[before], end.step), at(curves[after], end.step)
                inputs[metric] = " → ".join(map(number, pair))
            elif after in curves:
                outputs[metric] = _ends(curves, after, end)
        for texts, values in ((layers, inputs), (bare, outputs)):
            named = [
                Markup("{} {}").format(_codes([metric]), value) if len(values) > 1 else value
                for metric, value in values.items()
            ]
            moved = _direction(pairs) + ": " if len(values) > 1 and _direction(pairs) else ""
            count = _n(curves, CurveKey(metrics[0], site, "after"))
            if named:
                text = Markup("{} {}{}{}").format(site, moved, Markup(", ").join(named), count)
                texts.append(text)
    found = []
    if layers:
        text = Markup("Input → output at {}: {}.").format(_at(end), Markup("; ").join(layers))
        found.append(Answer("What does the isotropy layer change?", text))
    if bare:
        text = Markup("Without a layer that changes embeddings, at {}.")
        found.append(Answer("What does the head read?", text.format(Markup("; ").join(bare))))
    return found


def _ends(curves: Curves, curve: CurveKey, end: End) -> str:
    (start, first), last = curves[curve][0], number(at(curves[curve], end.step))
    return (f"{number(first)} → " if start != end.step else "") + last


def _at(end: End) -> str:
    return f"the {end.name}" if end.is_kept else end.name


def _n(curves: Curves, curve: CurveKey) -> str:
    counts = curves.get(curve._replace(metric="n_rows"))
    return f" (N = {int(counts[-1][1]):,})" if counts else ""
