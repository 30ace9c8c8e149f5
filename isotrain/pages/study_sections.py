"""Sections of a study's page that have figures: differences, isotropy, isotropy by layer."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup
from matplotlib.figure import Figure

from isotrain.pages.page import Figures, Section, piece
from isotrain.pages.study_answer import task_score
from isotrain.pages.study_figures import (
    Looks,
    against_isotropy,
    around_site,
    by_layer,
    differences,
    through_training,
    with_names,
)
from isotrain.results.curves import Curve
from isotrain.results.frame import Row, is_score
from isotrain.results.readings import base_of, label, readings, view_titles
from isotrain.results.result import Result
from isotrain.results.series import sites_of
from isotrain.results.words import BOTH, CI, cloud_name, score_name
from isotrain.runs.keys import VIEWS, CurveKey, last_layer, parse_key, shown_view

BAND = f"Bands and whiskers: {CI} of the mean over seeds; one seed has none."


def difference_section(drawn: Figures, result: Result, looks: Looks) -> Section:
    """The differences of each task, on test first."""
    study = result.study
    parts, empty, drawn_rows = list[Markup](), list[str](), list[Row]()
    for task in study.tasks:
        runs = [run for run in result.runs if run.task == task]
        n_before = len(parts)
        for key, own in result.table(task).items():
            if rows := [row for row in own if is_score(key) and row.difference is not None]:
                known = {row.method: row.published for row in own if row.published is not None}
                base = known.get(study.baseline)
                gaps = {} if base is None else {m: value - base for m, value in known.items()}
                figure = differences(rows, runs, looks, gaps)
                name = f"differences_{task}_{key.replace('/', '_')}"
                text = f"differences to {study.baseline} on {task}, {score_name(key)}"
                parts.append(drawn.add(figure, name, text))
                drawn_rows += rows
        empty += [task] if len(parts) == n_before else []
    body = Markup()
    if parts:
        body += piece("method_choice", looks=looks.values(), plain=True)
        body += piece("grid", parts=parts, large=True)
    if empty:
        text = f"Nothing to compare with {study.baseline} on {', '.join(empty)}."
        body += piece("note", text=text)
    text = (
        f"Thick line: {CI} of the mean difference over seeds. Full marker: different by Holm's "
        "test at 5 %; a CI is of one method alone, and may leave out 0 where Holm's test finds "
        f"nothing. Faint dots: single seeds. Thin line below, where there is one: {BOTH}."
    )
    if any(row.margin for row in drawn_rows):
        text += " Grey band: the margin of equivalence."
    if any(row.published is not None for row in drawn_rows):
        text += " Grey cross: the published difference."
    note = piece("note", text=text) if parts else Markup()
    return Section("Differences in the score", body + note)


def scatter_section(drawn: Figures, result: Result, looks: Looks) -> Section | None:
    """Score against isotropy at the end of every run, by a choice of metric and cloud."""
    options: list[tuple[str, Markup]] = []
    for metric in result.headline:
        is_first = True
        for curve_key in _curve_keys(result, metric):
            parts = []
            for task in result.study.tasks:
                runs = [run for run in result.runs if run.task == task]
                score = task_score(result, task)
                if any(curve_key.text in run.scores and score in run.scores for run in runs):
                    title = f"{task} · {cloud_name(curve_key)}"
                    figure = against_isotropy(runs, score, curve_key, looks, title)
                    name = f"score_against_{metric}_{task}"
                    text = f"{score_name(score)} on {task} over {label(metric)}"
                    parts.append(_named(drawn, figure, name, text, looks, is_first))
            is_first = False
            if parts:
                title = f"{label(metric)} · {cloud_name(curve_key)}"
                options.append((title, piece("grid", parts=parts, large=True)))
    if not options:
        return None
    body = piece("method_choice", looks=looks.values())
    body += piece("chooser", key="scatter", text="Isotropy", options=options)
    note = (
        "Small points: runs, measured at the end on dev. Large ones: means of methods. Hollow: "
        "collapsed predictions. Methods that lie along a line do not show that isotropy makes the "
        "score: they differ in more than isotropy."
    )
    return Section("Score against isotropy", body + piece("note", text=note))


def layer_section(
    drawn: Figures, result: Result, curves: Sequence[Curve], looks: Looks
) -> Section | None:
    """Isotropy of every layer at the end, and around each site; folded but for the first metric."""
    titles, body = view_titles({"is_causal": result.is_causal}), Markup()
    for metric in result.headline:
        panels = Markup()
        for task in result.study.tasks:
            own = [c for c in curves if (c.task, c.key.metric) == (task, metric) and c.end]
            parts = []
            for view in [v for v in VIEWS if any(c.key.view == v for c in own)]:
                figure = by_layer(own, view, looks, titles)
                name = f"layers_{task}_{metric}_{view}"
                text = f"{label(metric)} of {titles[view]} by layer on {task}"
                parts.append(_named(drawn, figure, name, text, looks))
            for site in sites_of(c.key for c in own):
                figure = around_site(own, site, looks)
                name, text = f"site_{task}_{metric}_{site}", f"{label(metric)} around site {site}"
                parts.append(_named(drawn, figure, name, f"{text} on {task}", looks))
            panels += piece("grid", parts=parts) if parts else Markup()
        if panels and (reading := readings().get(base_of(metric))):
            panels += piece("note", text=reading.text)
        if panels:
            body += piece("folded", title=label(metric), body=panels, is_open=not body)
    if not body:
        return None
    text = (
        f"Layer 0 is the embedding output. Layers are as the encoder gives them. {BAND} Around a "
        "site: input and output of the isotropy layer; a method without one has what the head "
        "reads."
    )
    choice = piece("method_choice", looks=looks.values())
    return Section("Isotropy by layer at the end", choice + body + piece("note", text=text))


def training_section(
    drawn: Figures, result: Result, curves: Sequence[Curve], looks: Looks
) -> Section | None:
    """Isotropy through training at the layers, a panel each; folded but for the first."""
    body = Markup()
    for metric in result.headline:
        for task in result.study.tasks:
            own = [c for c in curves if (c.task, c.key.metric) == (task, metric) and c.points]
            parts = []
            for curve_key in _few(dict.fromkeys(curve.key for curve in own)):
                figure = through_training(own, curve_key, looks)
                text = f"{label(metric)} at {cloud_name(curve_key)} on {task} through training"
                parts.append(drawn.add(figure, "", text, file=False))
            if parts:
                panels, title = piece("grid", parts=parts), f"{task}: {label(metric)}"
                body += piece("folded", title=title, body=panels, is_open=not body)
    if not body:
        return None
    text = (
        f"{BAND} Of the layers below the last one the tokens are shown, where they were measured."
    )
    if len({point.n for curve in curves for point in curve.points.values()}) > 1:
        text += " Where runs are missing or ended early, points are of fewer seeds."
    choice = piece("method_choice", looks=looks.values())
    return Section("Isotropy through training", choice + body + piece("note", text=text))


def _named(
    drawn: Figures, figure: Figure, name: str, text: str, looks: Looks, file: bool = True
) -> Markup:
    """A figure whose methods the page names above it; its file names them itself."""
    part = drawn.add(figure, name, text, file=False)
    if file:
        drawn.save(with_names(figure, looks), name)
    return part


def _curve_keys(result: Result, metric: str) -> list[CurveKey]:
    """Where a score may be set against a metric: in the last layer first, then around sites."""
    keys = dict.fromkeys(key for run in result.runs for key in run.scores)
    curve_keys = [p for key in keys if (p := parse_key(key)) and p.metric == metric]
    last = last_layer(curve_keys)
    of_last = [p for p in curve_keys if p.where == last]
    sites = sorted((p for p in curve_keys if p.view not in VIEWS), key=lambda p: (p.where, p.view))
    return sorted(of_last, key=lambda p: (p.view != "tokens", p.view)) + sites


def _few(curve_keys: Iterable[CurveKey]) -> list[CurveKey]:
    """The tokens of every layer, or the first view there is; all of the last one, and sites."""
    curve_keys = list(curve_keys)
    of_layers = [p for p in curve_keys if p.view in VIEWS]
    last, view = last_layer(of_layers), shown_view({p.view for p in of_layers})
    chosen = [p for p in of_layers if p.view == view or p.where == last]
    return sorted(chosen, key=lambda p: (p.view != view, p.where)) + sorted(
        (p for p in curve_keys if p.view not in VIEWS), key=lambda p: (p.where, p.view == "after")
    )
