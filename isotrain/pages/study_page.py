"""HTML page of a study: answer, differences, isotropy, tables, how to repeat it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isotrain.pages.page import Charts, render, write_figures
from isotrain.pages.run_tables import Table
from isotrain.pages.study_charts import (
    against_isotropy,
    around_site,
    by_layer,
    differences,
    shown_curves,
    through_training,
)
from isotrain.results.curves import Curve, isotropy_curves
from isotrain.results.findings import sentences
from isotrain.results.frame import Row, is_score
from isotrain.results.names import cloud_name, score_name
from isotrain.results.readings import base_of, label, readings, view_titles
from isotrain.results.result import Result
from isotrain.results.series import sites_of
from isotrain.results.statistics import FEWEST_SEEDS
from isotrain.results.verdicts import faults, is_equivalent, task_answers, task_score
from isotrain.results.words import (
    caption,
    collapsed_runs,
    difference_text,
    legend,
    mean_text,
    notes,
    score_table,
)
from isotrain.runs.files import replace_text
from isotrain.runs.keys import VIEWS, CurveKey, last_layer, parse_key
from isotrain.runs.numbers import is_share, margin_text


def write_study_page(folder: Path, result: Result, figures: bool = False) -> Path:
    """Write `study.html` into the folder of a study, with `figures/` on request; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    study, charts = result.study, Charts()
    methods = [study.baseline, *(name for name in study.methods if name != study.baseline)]
    curves = isotropy_curves(result.runs, result.headline)
    isotropy_keys = _isotropy_keys(result)
    text = render(
        "study.html",
        charts,
        title=f"{result.kind.capitalize()} {study.name}",
        facts=_facts(result),
        question=result.question[:1].upper() + result.question[1:],
        answers=task_answers(result),
        faults=sentences(faults(result)),
        study=study,
        result=result,
        methods=methods,
        metrics=[label(metric) for metric in result.headline],
        differences=_differences(charts, result, methods),
        scatter=_scatter(charts, result, isotropy_keys, methods),
        isotropy_names=list(isotropy_keys),
        layers=_layers(charts, result, curves, methods),
        training=_training(charts, result, curves, methods),
        clouds=[cloud_name(key) for key in _clouds(curves)],
        has_margin=any(row.margin for row in result.rows),
        has_published=any(row.published is not None for row in result.rows),
        compared=_compared(result),
        numbers=_numbers(result),
        collapsed=collapsed_runs(result.runs),
        legend=legend(study, result.rows, result.gaps),
        readings={
            label(metric): reading.text
            for metric in result.headline
            if (reading := readings().get(base_of(metric)))
        },
        caption=caption,
        is_equivalent=is_equivalent,
        is_share=is_share,
        mean_text=mean_text,
        difference_text=difference_text,
        margin_text=margin_text,
        fewest=FEWEST_SEEDS,
    )
    replace_text(folder / "study.html", text)
    if figures:
        write_figures(folder / "figures", charts.specs)
    return folder / "study.html"


def _facts(result: Result) -> list[str]:
    """Sizes, encoder, code and the day of the last run."""
    study, runs = result.study, result.runs
    sizes = (study.tasks, "task"), (study.methods, "method"), (study.seeds, "seed")
    plan = " × ".join(f"{len(items)} {noun}{'s' * (len(items) != 1)}" for items, noun in sizes)
    progress = f"{len(runs):,} of {result.n_planned:,} runs finished" if result.n_planned else ""
    codes = ", ".join(dict.fromkeys(run.code for run in runs if run.code))
    newest = max((run.finished_at for run in runs), default="")[:10]
    return [fact for fact in (plan, progress, result.encoder, codes, newest) if fact]


def _differences(charts: Charts, result: Result, methods: Sequence[str]) -> list[Any]:
    """The differences of each task, on test first."""
    study, parts = result.study, []
    for task in study.tasks:
        runs = [run for run in result.runs if run.task == task]
        for key, group in result.table(task).items():
            if rows := [row for row in group if is_score(key) and row.difference is not None]:
                scores = {row.method: row.published for row in group if row.published is not None}
                base = scores.get(study.baseline)
                deltas = {} if base is None else {m: value - base for m, value in scores.items()}
                name = f"differences_{task}_{key.replace('/', '_')}"
                parts.append(charts.add(name, differences(rows, runs, methods, deltas)))
    return parts


def _isotropy_keys(result: Result) -> dict[str, CurveKey]:
    """Isotropy values to plot a score against: the last layer first, then around sites."""
    places = {}
    keys = dict.fromkeys(key for run in result.runs for key in run.scores)
    for metric in result.headline:
        candidates = [curve for key in keys if (curve := parse_key(key)) and curve.metric == metric]
        last = last_layer(candidates)
        for key in shown_curves(c for c in candidates if c.where == last or c.view not in VIEWS):
            places[f"{label(metric)} · {cloud_name(key)}"] = key
    return places


def _scatter(
    charts: Charts, result: Result, isotropy_keys: dict[str, CurveKey], methods: Sequence[str]
) -> list[Any]:
    """Score against isotropy at the end of every run, a chart for each task."""
    parts, key_texts = [], {key.text for key in isotropy_keys.values()}
    for task in result.study.tasks:
        score = task_score(result, task)
        runs = [run for run in result.runs if run.task == task and score in run.scores]
        if any(key_texts & run.scores.keys() for run in runs):
            spec = against_isotropy(runs, score, isotropy_keys, methods)
            parts.append(charts.add(f"score_against_isotropy_{task}", spec))
    return parts


def _layers(
    charts: Charts, result: Result, curves: Sequence[Curve], methods: Sequence[str]
) -> list[Any]:
    """Isotropy of every layer at the end, and around each site: the charts of each task."""
    titles, parts = view_titles({"is_causal": result.is_causal}), []
    for task in result.study.tasks:
        task_charts: list[Any] = []
        task_curves = [curve for curve in curves if curve.task == task and curve.end]
        for view in [v for v in VIEWS if any(curve.key.view == v for curve in task_curves)]:
            spec = by_layer(task_curves, view, methods, titles)
            task_charts.append(charts.add(f"layers_{task}_{view}", spec))
        for site in sites_of(curve.key for curve in task_curves):
            task_charts.append(
                charts.add(f"site_{task}_{site}", around_site(task_curves, site, methods))
            )
        parts += [task_charts] if task_charts else []
    return parts


def _training(
    charts: Charts, result: Result, curves: Sequence[Curve], methods: Sequence[str]
) -> list[Any]:
    """Isotropy through training, a chart for each task."""
    parts, order = [], _clouds(curves)
    for task in result.study.tasks:
        task_curves = [curve for curve in curves if curve.task == task and curve.points]
        task_curves.sort(key=lambda curve: order.index(curve.key._replace(metric="")))
        if task_curves:
            parts.append(charts.add(f"training_{task}", through_training(task_curves, methods)))
    return parts


def _clouds(curves: Sequence[Curve]) -> list[CurveKey]:
    return shown_curves({curve.key._replace(metric="") for curve in curves if curve.points})


def _compared(result: Result) -> list[Table]:
    """Tasks and methods with their overrides."""
    return [
        Table(
            title,
            ["name", "overrides"],
            [[name, " ".join(overrides)] for name, overrides in group.items()],
        )
        for title, group in (("Tasks", result.study.tasks), ("Methods", result.study.methods))
    ]


def _numbers(result: Result) -> list[dict[str, Any]]:
    """Tables of each kind of runs and task, one per score; those of isotropy apart."""
    sections = []
    for kind in result.kinds if result.rows else []:
        for task in result.study.tasks:
            table = result.table(task, kind)
            for of_scores in (True, False):
                by_score = {key: rows for key, rows in table.items() if is_score(key) == of_scores}
                n_seeds = len(result.study.seeds)
                texts = [
                    f"{score_name(key)}: {text}."
                    for key, rows in by_score.items()
                    for text in notes(rows, n_seeds)
                ]
                sections.append(
                    {
                        "kind": kind,
                        "task": task,
                        "of_scores": of_scores,
                        "tables": [_table(rows) for rows in by_score.values()],
                        "notes": texts,
                    }
                )
    return sections


def _table(rows: Sequence[Row]) -> Table:
    head, *lines = score_table(rows)
    return Table(f"{rows[0].task}, {caption(rows)}", head, lines, rows[0].score)
