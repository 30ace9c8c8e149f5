"""What stands in the cells of a study's tables, the same in markdown and in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from isotrain.study.definition import Study
from isotrain.study.results import Run
from isotrain.study.statistics import Summary
from isotrain.study.table import Row, is_of_the_task

HEADING = ("arm", "n", "mean", "sd", "95 % interval", "difference", "95 % interval", "p Holm")
PUBLISHED = ("arm", "published", "difference", "here", "n", "difference here")


def main_cells(row: Row) -> tuple[str, ...]:
    """Mean, spread and interval of an arm, its difference, under `HEADING`."""
    mean, sd, interval = spread(row.own)
    difference, _, around = spread(row.comparison.difference) if row.comparison else ("", "", "")
    return (row.arm, str(row.own.n), mean, sd, interval, difference, around, p_text(row.p_holm))


def detail_cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What else is known of the differences, a heading first; empty where there is none.

    A column that no row fills is left out, as equivalence is without a margin.
    """
    heading = (
        *("arm", "pairs", "p", "test", "p equivalent", "seeds for a point"),
        *("over rows and seeds", "N × n"),
    )
    lines: list[tuple[str, ...]] = []
    for row in rows:
        if (found := row.comparison) is None:
            continue
        line = [row.arm, str(found.difference.n), p_text(found.p), found.method]
        line += [p_text(found.p_equivalent)]
        line += ["" if found.n_for_a_point is None else f"{found.n_for_a_point:,}"]
        if row.items is None:
            lines.append((*line, "", ""))
        else:
            around = _interval(row.items.low, row.items.high)
            lines.append((*line, around, f"{row.items.n_items} × {row.items.n_seeds}"))
    columns = zip(heading, *lines, strict=True)
    filled = [column for column in columns if any(column[1:])]
    return list(zip(*filled, strict=True)) if lines else []


def published_cells(study: Study, task: str, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Published scores of a task beside the monitored ones here; empty where none are given.

    Rows below the heading `PUBLISHED`.
    """
    published = study.published.get(task, {})
    here = {row.arm: row for row in rows if row.score == monitor_of(rows)}
    base = published.get(study.baseline)
    lines: list[tuple[str, ...]] = []
    for arm, value in published.items():
        row = here.get(arm)
        gap = "" if base is None or arm == study.baseline else f"{value - base:z.4f}"
        own = (f"{row.own.mean:z.4f}", str(row.own.n)) if row else ("", "")
        difference = row.comparison.difference.mean if row and row.comparison else None
        shown = "" if difference is None else f"{difference:z.4f}"
        lines.append((arm, f"{value:z.4f}", gap, *own, shown))
    return lines


def monitor_of(rows: Sequence[Row]) -> str:
    """The monitored score of the rows of one task: the first that the task is judged by."""
    return next((row.score for row in rows if is_of_the_task(row.score)), "")


def n_rows_of(rows: Sequence[Row]) -> str:
    """The N behind the rows of one score; several numbers where runs differ."""
    return " or ".join(dict.fromkeys(row.n_rows for row in rows))


def collapsed(runs: Sequence[Run]) -> list[str]:
    """A line for every degenerate run, with the reason.

    >>> collapsed([Run("rte", "none", 0, {}, {}, "one class"), Run("rte", "none", 1, {}, {})])
    ['rte, none, seed 0: one class']
    """
    return [
        f"{run.task}, {run.arm}, seed {run.seed}: {run.degenerate}"
        for run in runs
        if run.degenerate
    ]


def spread(summary: Summary) -> tuple[str, str, str]:
    """Mean, standard deviation and interval, empty where they are not defined."""
    sd = "" if summary.sd is None else f"{summary.sd:.4f}"
    return f"{summary.mean:z.4f}", sd, _interval(summary.low, summary.high)  # z: no minus zero


def p_text(p: float | None) -> str:
    """A p value with three decimals.

    >>> p_text(0.0312), p_text(1e-5), p_text(None)
    ('0.031', '< 0.001', '')
    """
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:z.4f} to {high:z.4f}"
