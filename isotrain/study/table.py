"""The tables of a study: markdown to read, CSV to compute with. Equal runs give equal bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from isotrain.study.definition import Study
from isotrain.study.results import Run
from isotrain.study.statistics import Summary, compare_paired, summarize

COLUMNS = (
    *("task", "score", "arm", "N", "n", "mean", "sd", "low", "high", "baseline"),
    *("diff_mean", "diff_sd", "diff_n", "diff_low", "diff_high", "p"),
)


class Row(NamedTuple):
    """One score of one arm on one task."""

    task: str
    score: str
    arm: str
    n_rows: str  # N; several numbers where runs differ
    own: Summary
    difference: Summary | None  # to the baseline; None for itself and where no seed is shared


def table_rows(study: Study, runs: Sequence[Run]) -> list[Row]:
    """Every shown score of every arm over its finished seeds, by task, score and arm.

    Differences are paired by seed, over the seeds that both arms have.
    """
    rows = []
    for task in study.tasks:
        of_task = [run for run in runs if run.task == task]
        for score in dict.fromkeys(key for run in of_task for key in run.shown):
            found = {
                arm: {
                    run.seed: run
                    for run in of_task
                    if run.arm == arm and score in run.shown and score in run.scores
                }
                for arm in study.arms
            }
            base = found[study.baseline]
            for arm, by_seed in found.items():
                if not by_seed:
                    continue
                shared = [k for k in study.seeds if k in by_seed and k in base]
                difference = None
                if arm != study.baseline and shared:
                    difference = compare_paired(
                        [by_seed[k].scores[score] for k in shared],
                        [base[k].scores[score] for k in shared],
                    )
                own = summarize([run.scores[score] for run in by_seed.values()])
                counts = sorted({run.shown[score] for run in by_seed.values()})
                n_rows = " or ".join(map(str, counts))
                rows.append(Row(task, score, arm, n_rows, own, difference))
    return rows


def markdown(
    study: Study,
    rows: Sequence[Row],
    missing: Sequence[str],
    n_runs: tuple[int, int],
    overrides: Iterable[str],
    collapsed: Sequence[str] = (),
) -> str:
    """The report: what was run (`n_runs`: finished, all), one table a task, how to read them.

    Runs that `collapsed` names are told above the tables; their scores count in the means.
    """
    sizes = f"{len(study.tasks)} × {len(study.arms)} × {len(study.seeds)}"
    lines = [f"# Study {study.name}", ""]
    lines += [f"Tasks × arms × seeds: {sizes}; {n_runs[0]} of {n_runs[1]} runs finished."]
    lines += ["", f"- every run: `{' '.join(overrides)}`"]
    for kind, group in (("task", study.tasks), ("arm", study.arms)):
        lines += [f"- {kind} {name}: `{' '.join(own)}`" for name, own in group.items()]
    lines += [f"- seeds: {', '.join(map(str, study.seeds))}", ""]
    if missing:
        lines += ["Missing:", "", *(f"- {line}" for line in missing), ""]
    if collapsed:
        lines += ["Degenerate, and counted in the tables:", ""]
        lines += [*(f"- {line}" for line in collapsed), ""]
    for task in study.tasks:
        if cells := [_cells(row) for row in rows if row.task == task]:
            difference = (f"− {study.baseline}", "sd", "95 % interval", "n", "p")
            heading = ("score", "N", "arm", "n", "mean", "sd", "95 % interval", *difference)
            lines += [f"## {task}", "", *_aligned([heading, *cells]), ""]
    n_tests = sum(row.difference is not None and row.difference.p is not None for row in rows)
    lines += [
        "N: rows a score was computed on; n: seeds. Mean, standard deviation (n − 1)",
        "and two-sided 95 % t interval over seeds, which holds the spread between trainings, not",
        f"that of the N rows. Columns from “− {study.baseline}” on: paired differences over the",
        "seeds that both arms have, with the two-sided p of the paired t test, not corrected for",
        f"the {n_tests} tests of this study. One seed, or seeds that all agree, give no interval",
        "and no p.",
    ]
    return "\n".join(lines) + "\n"


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


def table_csv(study: Study, rows: Sequence[Row]) -> str:
    """One line per task, score and arm, with `COLUMNS`; empty where something is not defined."""
    lines = []
    for row in rows:
        own, difference = row.own, row.difference
        line = [row.task, row.score, row.arm, row.n_rows, str(own.n)]
        line += map(_number, (own.mean, own.sd, own.low, own.high))
        line.append(study.baseline)
        if difference is None:
            line += [""] * 6
        else:
            line += [_number(difference.mean), _number(difference.sd), str(difference.n)]
            line += map(_number, (difference.low, difference.high, difference.p))
        lines.append(line)
    return _csv([COLUMNS, *lines])


def runs_csv(runs: Sequence[Run]) -> str:
    """One line per finished run: task, arm, seed, and every score it has."""
    keys = sorted({key for run in runs for key in run.scores})
    lines = [
        [run.task, run.arm, str(run.seed), *(_number(run.scores.get(key)) for key in keys)]
        for run in runs
    ]
    return _csv([["task", "arm", "seed", *keys], *lines])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


def _csv(lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _cells(row: Row) -> tuple[str, ...]:
    difference = ("", "", "", "", "")
    if row.difference is not None:
        p = row.difference.p
        shown = "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
        difference = (*_spread(row.difference), str(row.difference.n), shown)
    return (row.score, row.n_rows, row.arm, str(row.own.n), *_spread(row.own), *difference)


def _spread(summary: Summary) -> tuple[str, str, str]:
    sd = "" if summary.sd is None else f"{summary.sd:.4f}"
    interval = "" if summary.low is None else f"{summary.low:z.4f} to {summary.high:z.4f}"
    return f"{summary.mean:z.4f}", sd, interval  # z: no minus zero


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Markdown table lines with columns of one width; the first line is the heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in [lines[0], rule, *lines[1:]]
    ]
