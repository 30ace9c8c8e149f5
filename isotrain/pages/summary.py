"""Terminal output of a run: folders, trainable parameters, final scores and isotropy."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from isotrain.console import say
from isotrain.results.findings import faults, selection, sentences, unlike
from isotrain.results.names import CI
from isotrain.results.readings import label
from isotrain.results.runs import SPLITS
from isotrain.results.series import (
    Rows,
    Series,
    at,
    chance,
    end_of,
    headline,
    isotropy_series,
    measured,
    series,
)
from isotrain.results.statistics import accuracy_interval
from isotrain.runs.keys import SIDES, VIEWS, CurveKey, last_layer, on_test
from isotrain.runs.numbers import number, score_number

FILES = ("report.html", "metrics.jsonl", "result.json")  # of a finished run
MOST_LINES, MOST_LOSSES, MOST_METRICS = 20, 5, 3  # of a summary
STYLE: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False}


def print_summary(
    result: Mapping[str, Any],
    rows: Sequence[dict[str, float]],
    folder: Path,
    note: str = "",
) -> None:
    """Scores and losses, first and last, and the headline isotropy, in `MOST_LINES` at most.

    Isotropy is of every view of the last layer, and before and after each isotropy layer; the
    last values are of the selected weights.
    """
    end = end_of(result, rows).step
    remarks = sentences([*selection(result), *faults(result), *unlike(result, rows)])
    losses, curves = _losses(result, rows), isotropy_series(rows)
    names = headline(result, measured(curves))[:MOST_METRICS]
    clouds = _shown(curves, names)
    room = MOST_LINES - 9 - len(remarks) - len(losses)  # 9: headings, scores, files
    say(f"{folder.name}, seed {result['seed']}")
    scores = Table(**STYLE)
    lines = [*_scores(result, rows, end), *losses]
    has_ci = any(any(line[3:]) for line in lines)
    headings = list(dict.fromkeys(("", "step 0", f"step {end}", *[CI] * has_ci)))  # step 0 once
    for heading in headings:
        scores.add_column(heading, justify="right" if heading else "left")
    for name, *cells in lines:
        scores.add_row(name, *(cells if end else cells[1:])[: len(headings) - 1])
    say(scores)
    if clouds:
        n_clouds = len(clouds) if len(clouds) <= room else max(room - 1, 1)
        isotropy = _isotropy_table(curves, names, clouds[:n_clouds], end)
        if n_clouds < len(clouds):
            isotropy.add_row(f"and {len(clouds) - n_clouds} more")
        say("")
        say(isotropy)
    for remark in remarks:
        say(remark)
    files = [name for name in FILES if (folder / name).is_file()]
    no_page = FILES[0] not in files
    files[:1] = [f"{name} (every layer, site and metric)" for name in files[:1]]
    note = f" ({note})" if note else ""
    hint = f"; isotrain report {shlex.quote(str(folder))} draws the page" if no_page else ""
    say(f"{folder}{note}: {', '.join(files)}{hint}; {result['timings_s']['total']:.0f} s")


def print_scores(name: str, scores: Mapping[str, float], n_rows: Mapping[str, int]) -> None:
    """Print every score of an evaluation, with N and the 95 % CI of an accuracy."""
    table = Table(**STYLE)
    for heading in (name, "score", CI):
        table.add_column(heading, justify="left" if heading == name else "right")
    for key in sorted(scores):
        if re.match(r"(val|test)/(?!n_rows$|(pooled|tokens|layer_\d+)/)", key):  # no counters
            table.add_row(*_cells(key, scores[key], scores, n_rows))
    say(table)


def _cells(
    key: str, value: float, scores: Mapping[str, float], n_rows: Mapping[str, int]
) -> tuple[str, str, str]:
    """Table cells of a score: N, value and CI."""
    stage = key.partition("/")[0]
    n = int(scores.get(f"{stage}/n_rows", n_rows.get(SPLITS[stage], 0)))
    bounds = accuracy_interval(key, value, n)
    ci_texts = (score_number(bound, key) for bound in bounds or ())
    return f"{key} (N = {n:,})", score_number(value, key), " to ".join(ci_texts)


def _scores(result: Mapping[str, Any], rows: Rows, end: float) -> list[list[str]]:
    """Lines for dev and test, if evaluated: N, first, last, 95 % CI."""
    lines, scores, key = [], result["scores"], result["monitor"]
    test_key = on_test(key)
    if values := series(rows, key):  # empty in a debugging run without validation
        name, *cells = _cells(key, at(values, end), scores, result["n_rows"])
        lines.append([name, score_number(values[0][1], key), *cells])
    if test_key in scores:
        name, *cells = _cells(test_key, scores[test_key], scores, result["n_rows"])
        lines.append([name, "", *cells])
    return lines


def _losses(result: Mapping[str, Any], rows: Sequence[dict[str, float]]) -> list[list[str]]:
    """A line for each objective and for the task: first and last logged loss."""
    names = list(result.get("config", {}).get("objective", {}))
    lines = []
    for name in ["task_loss", *names] if names else []:
        if values := series(rows, f"train/{name}"):
            (start, first), (end, last) = values[0], values[-1]
            steps = f"steps {start} and {end}" if start < end else f"step {end}"
            first_cell = number(first) if start < end else ""
            lines.append([f"train/{name} ({steps})", first_cell, number(last)])
    return lines[:MOST_LOSSES]


def _shown(curves: Iterable[CurveKey], names: Sequence[str]) -> list[tuple[str, str]]:
    """The clouds of a table: last layer, then layer input and output of each site."""
    candidates = [c for c in curves if c.metric in names]
    clouds, last = {(c.where, c.view) for c in candidates}, last_layer(candidates)
    sites = sorted({where for where, view in clouds if view in SIDES})
    order = [(last, view) for view in VIEWS] + [(site, side) for site in sites for side in SIDES]
    return [cloud for cloud in order if cloud in clouds]


def _isotropy_table(
    curves: Mapping[CurveKey, Series],
    names: Sequence[str],
    clouds: Sequence[tuple[str, str]],
    end: float,
) -> Table:
    """First and last value of each metric in each cloud, with its null range if known."""
    table = Table(**STYLE)
    table.add_column("isotropy on dev")
    table.add_column("N", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for where, view in clouds:
        n = curves[CurveKey("n_rows", where, view)][-1][1]
        has_no_layer = view == "after" and (where, "before") not in clouds  # no isotropy layer
        cells = [where if has_no_layer else f"{where} {view}", f"{int(n):,}"]
        for name in names:
            curve = CurveKey(name, where, view)
            values = curves.get(curve)
            if not values:
                cells.append("–")
                continue
            trend, null = [values[0][1]] * bool(end) + [at(values, end)], chance(curves, curve, end)
            cells.append(" → ".join(map(number, trend)) + (f" (null {null})" if null else ""))
        table.add_row(*cells)
    return table


def print_layers(
    methods: Mapping[str, Sequence[dict[str, float]]], result: Mapping[str, Any]
) -> None:
    """Headline isotropy of every layer at the end of each method, one table per metric."""
    by_method = {method: isotropy_series(rows) for method, rows in methods.items()}
    curves = [curve for curve in next(iter(by_method.values())) if curve.view in VIEWS]
    views = [view for view in VIEWS if view in {c.view for c in curves}]
    layers = sorted({c.where for c in curves})
    for metric in headline(result, measured(curves))[:MOST_METRICS]:
        say(f"{label(metric)}, every layer, end of training")
        table = Table(**STYLE)
        table.add_column("layer")
        columns = [(view, method) for view in views for method in by_method]
        for view, method in columns:
            n = by_method[method][CurveKey("n_rows", layers[0], view)][-1][1]
            table.add_column(f"{view}\nN = {int(n):,}\n{method}", justify="right")
        for layer in layers:
            row = [by_method[method].get(CurveKey(metric, layer, view)) for view, method in columns]
            table.add_row(layer, *(number(values[-1][1]) if values else "–" for values in row))
        say(table)
