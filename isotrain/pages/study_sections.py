"""Sections of a study's page that have figures: differences, isotropy, isotropy by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.figure import Figure

from isotrain.pages.page import Figures, Section, piece
from isotrain.pages.readings import READINGS, base_of, label, view_titles
from isotrain.pages.study_answer import task_score
from isotrain.pages.study_content import Curve, ScoreRow, StudyContent
from isotrain.pages.study_figures import (
    Looks,
    against_isotropy,
    around_site,
    by_layer,
    differences,
    sites_of_curves,
    through_training,
    with_names,
)
from isotrain.pages.study_words import best_of_text, cloud_name, is_score, score_name
from isotrain.runs.keys import VIEWS, CurveKey, parse_key

BAND = (
    "The band of the baseline is its 95 % t interval over seeds. That of another arm is as wide as "
    "the interval of its difference to the baseline, paired by seed: it leaves out the baseline's "
    "line where that difference is clear (of one arm and place, not corrected). Where the baseline "
    "has no value it is over seeds alone; one seed has none."
)


def difference_section(drawn: Figures, content: StudyContent, looks: Looks) -> Section:
    """The differences of each task, first that of the score that the answer is about."""
    parts, empty = [], []
    for task in content.tasks:
        runs = [run for run in content.runs if run.task == task.name]
        first = task_score(content, task.name)
        own = [row for row in content.rows if row.task == task.name and _is_drawn(row)]
        keys = list(dict.fromkeys(row.score for row in own))
        empty += [] if keys else [task.name]
        for key in sorted(keys, key=lambda key: key != first):
            rows = [row for row in own if row.score == key]
            published = _published(content, task.name, key)
            figure = differences(rows, runs, looks, content.margin, published)
            name = f"differences_{task.name}_{key.replace('/', '_')}"
            text = f"differences to {content.baseline} on {task.name}, {score_name(key)}"
            parts.append(drawn.add(figure, name, text))
    body = Markup()
    if parts:
        body += piece("arm_choice", looks=looks.values(), plain=True)
        body += piece("grid", parts=parts, large=True)
    if empty:
        text = f"Nothing to compare with {content.baseline} on {', '.join(empty)}."
        body += piece("note", text=text)
    margin = f"; the grey band is ±{content.margin:g}, the margin" if content.margin else ""
    text = (
        "Thick line: 95 % t interval of the mean difference over seeds. Full marker: different by "
        "Holm's test at 5 %; an interval is of one arm alone, and may leave out 0 where Holm's "
        "test finds nothing. Faint dots: single seeds. Thin line below, where there is one: 95 % "
        f"interval over rows and seeds{margin}."
    )
    if any(row.published is not None for row in content.rows):
        text += " Grey cross: the published difference."
    scores = [row for row in content.rows if _is_drawn(row)]
    if best := best_of_text({row.arm: row.best_of for row in scores if row.best_of}):
        text += f" Scores of {best}."
    note = piece("note", text=text) if parts else Markup()
    return Section("Differences in the score", body + note)


def _is_drawn(row: ScoreRow) -> bool:
    found = row.difference
    return is_score(row.score) and found is not None and math.isfinite(found.estimate.mean)


def _published(content: StudyContent, task: str, key: str) -> dict[str, float]:
    """Published differences to the published baseline."""
    known = {
        row.arm: row.published
        for row in content.rows
        if (row.task, row.score) == (task, key) and row.published is not None
    }
    base = known.get(content.baseline)
    return {} if base is None else {arm: value - base for arm, value in known.items()}


def scatter_section(drawn: Figures, content: StudyContent, looks: Looks) -> Section | None:
    """Score against isotropy at the end of every run, by a choice of metric and cloud."""
    options: list[tuple[str, CurveKey, list[Markup]]] = []
    for metric in content.metrics:
        for curve_key in _curve_keys(content, metric):
            is_first = not options or options[-1][1].metric != metric
            parts = []
            for task in content.tasks:
                runs = [run for run in content.runs if run.task == task.name]
                score = task_score(content, task.name)
                known = any(curve_key.text in run.values and score in run.values for run in runs)
                if known:
                    title = f"{task.name} · {cloud_name(curve_key)}"
                    figure = against_isotropy(runs, score, curve_key, looks, title)
                    name = f"score_against_{metric}_{task.name}"
                    text = f"{score_name(score)} on {task.name} over {label(metric)}"
                    parts.append(_named(drawn, figure, name, text, looks, is_first))
            options.append((f"{label(metric)} · {cloud_name(curve_key)}", curve_key, parts))
    shown = [
        (title, piece("grid", parts=parts, large=True)) for title, _, parts in options if parts
    ]
    if not shown:
        return None
    body = piece("arm_choice", looks=looks.values())
    body += piece("chooser", key="scatter", text="Isotropy", options=shown)
    note = (
        "Small points: runs, measured at the end on dev rows. Large ones: means of arms. Hollow: "
        "degenerate runs. Arms that lie along a line do not show that isotropy makes the score: "
        "they differ in more than isotropy."
    )
    return Section("Score against isotropy", body + piece("note", text=note))


def layer_section(drawn: Figures, content: StudyContent, looks: Looks) -> Section | None:
    """Isotropy of every layer at the end, and around each site; folded but for the first metric."""
    titles, body = view_titles({"is_causal": content.is_causal}), Markup()
    for metric in content.metrics:
        panels = Markup()
        for task in content.tasks:
            curves = [c for c in _curves(content, task.name, metric) if c.end]
            parts = []
            for view in [v for v in VIEWS if any(c.key.view == v for c in curves)]:
                figure = by_layer(curves, view, looks, titles)
                name = f"layers_{task.name}_{metric}_{view}"
                text = f"{label(metric)} of {titles[view]} by layer on {task.name}"
                parts.append(_named(drawn, figure, name, text, looks))
            for site in sites_of_curves(curves):
                figure = around_site(curves, site, looks)
                name = f"site_{task.name}_{metric}_{site}"
                text = f"{label(metric)} around the isotropy layer at {site} on {task.name}"
                parts.append(_named(drawn, figure, name, text, looks))
            panels += piece("grid", parts=parts) if parts else ""
        if panels and (reading := READINGS.get(base_of(metric))):
            panels += piece("note", text=f"Range {reading.span}; {reading.says}.")
        if panels:
            body += piece("folded", title=label(metric), body=panels, is_open=not body)
    if not body:
        return None
    text = (
        f"Layer 0 is the embedding output. Layers are as the encoder gives them. {BAND} Around a "
        "site: in front of the isotropy layer and behind it; an arm without one has what the head "
        "reads."
    )
    choice = piece("arm_choice", looks=looks.values())
    return Section("Isotropy by layer at the end", choice + body + piece("note", text=text))


def training_section(drawn: Figures, content: StudyContent, looks: Looks) -> Section | None:
    """Isotropy through training at the layers, a panel each; folded but for the first."""
    body = Markup()
    for metric in content.metrics:
        for task in content.tasks:
            curves = [c for c in _curves(content, task.name, metric) if c.points]
            parts = []
            for curve_key in _few(dict.fromkeys(curve.key for curve in curves)):
                figure = through_training(curves, curve_key, looks)
                text = f"{label(metric)} at {cloud_name(curve_key)} on {task.name} through training"
                parts.append(drawn.add(figure, "", text, file=False))
            if parts:
                panels, title = piece("grid", parts=parts), f"{task.name}: {label(metric)}"
                body += piece("folded", title=title, body=panels, is_open=not body)
    if not body:
        return None
    text = (
        f"{BAND} Of the layers below the last one the tokens are shown, where they were measured."
    )
    if len({point.n for curve in content.curves for point in curve.points}) > 1:
        text += " Where runs are missing or ended early, points are of fewer seeds."
    choice = piece("arm_choice", looks=looks.values())
    return Section("Isotropy through training", choice + body + piece("note", text=text))


def _named(
    drawn: Figures, figure: Figure, name: str, text: str, looks: Looks, file: bool = True
) -> Markup:
    """A figure whose arms the page names above it; its file names them itself."""
    part = drawn.add(figure, name, text, file=False)
    if file:
        drawn.save(with_names(figure, looks), name)
    return part


def _curves(content: StudyContent, task: str, metric: str) -> list[Curve]:
    return [c for c in content.curves if c.task == task and c.key.metric == metric]


def _curve_keys(content: StudyContent, metric: str) -> list[CurveKey]:
    """Where a score may be set against a metric: in the last layer first, then around sites."""
    keys = dict.fromkeys(key for run in content.runs for key in run.values)
    curve_keys = [p for key in keys if (p := parse_key(key)) and p.metric == metric]
    last = max((p.where for p in curve_keys if p.view in VIEWS), default="")
    of_last = [p for p in curve_keys if p.where == last]
    sites = sorted((p for p in curve_keys if p.view not in VIEWS), key=lambda p: (p.where, p.view))
    return sorted(of_last, key=lambda p: (p.view != "tokens", p.view)) + sites


def _few(curve_keys: Sequence[CurveKey] | dict[CurveKey, None]) -> list[CurveKey]:
    """The tokens of every layer, or the first view there is; all of the last one, and sites."""
    of_layers = [p for p in curve_keys if p.view in VIEWS]
    last = max((p.where for p in of_layers), default="")
    view = next((v for v in ("tokens", *VIEWS) if any(p.view == v for p in of_layers)), "")
    chosen = [p for p in of_layers if p.view == view or p.where == last]
    return sorted(chosen, key=lambda p: (p.view != view, p.where)) + sorted(
        (p for p in curve_keys if p.view not in VIEWS), key=lambda p: (p.where, p.view == "after")
    )
