"""`table.tex`: booktabs tables of a study for a paper, from the template `table.tex.j2`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from isotrain.results.findings import sentences
from isotrain.results.frame import ALL, Row, is_score
from isotrain.results.result import Result, cautions
from isotrain.results.words import HEAD, caption, cells, collapsed_runs, legend, notes

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)
SHORT = {"CI over seeds and examples": "over examples", "difference [95 % CI]": "difference"}
TOO_WIDE = ("seeds needed",)  # all columns do not fit on a page
SIGNS = {  # special characters and their LaTeX escapes
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "·": r"$\cdot$",
    "–": "--",
    "…": r"\dots{}",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    "⁻": r"\textsuperscript{$-$}",
    **{sign: rf"\textsuperscript{{{n}}}" for n, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def latex(result: Result) -> str:
    """One `table` per task, with notes on its runs below it.

    A task has a second table if excluding collapsed predictions changes it.
    """
    tables = []
    for task in result.study.tasks:
        has_collapsed = any(run.degenerate for run in result.runs if run.task == task)
        for kind in result.kinds:
            scores = list(result.table(task, kind).values())
            has_methods = any(row.baseline for rows in scores for row in rows)
            if has_methods and (kind == ALL or has_collapsed):
                tables.append(_table(result, task, scores, kind))
    return TEMPLATES.get_template("table.tex.j2").render(tables=tables)


def escaped(text: str) -> str:
    r"""A text with all LaTeX special characters escaped.

    >>> escaped("50 % of r_1 & r_2")
    '50 \\% of r\\_1 \\& r\\_2'
    >>> escaped("a | b")
    'a \\textbar{} b'
    """
    return "".join(SIGNS.get(sign, sign) for sign in text)


def _table(result: Result, task: str, scores: Sequence[Sequence[Row]], kind: str) -> dict[str, Any]:
    """Template values of one task."""
    study = result.study
    scope = "" if kind == ALL else f", {kind} predictions"
    score_groups = [rows for rows in scores if is_score(rows[0].score)]
    isotropy_groups = [rows for rows in scores if not is_score(rows[0].score)]
    seed_counts = sorted({row.n for rows in scores for row in rows if row.baseline})
    n = f"{seed_counts[0]}" if len(seed_counts) == 1 else f"{seed_counts[0]} to {seed_counts[-1]}"
    entries = [row._replace(seeds_needed=None) for rows in scores for row in rows]  # no column
    gaps = [gap for gap in result.gaps if gap.task == task]
    return {
        "caption": escaped(
            f"{study.name}, {task}{scope}: mean over n = {n} seeds with its 95 % CI, difference to "
            f"{study.baseline} with its 95 % CI."
        ),
        "label": re.sub(r"[^\w.]|_", "-", "-".join(filter(None, (study.name, task, scope[2:])))),
        "parts": [_tabular(groups) for groups in (score_groups, isotropy_groups) if groups],
        "below": [escaped(f"{text.rstrip('.')}.") for text in _below(result, task, entries) if text]
        + [escaped(text) for text in legend(study, entries, gaps)],
    }


def _tabular(scores: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """One table with a header, and the lines of each score below its name."""
    cell_rows = [cells(row) for rows in scores for row in rows]
    is_filled = [any(column) for column in zip(*cell_rows, strict=True)]
    columns = [k for k, name in enumerate(HEAD) if is_filled[k] and name not in TOO_WIDE]
    parts = [
        (escaped(caption(rows)), [[escaped(cells(row)[k]) for k in columns] for row in rows])
        for rows in scores
    ]
    head = [SHORT.get(HEAD[k], HEAD[k]) for k in columns]
    return {"head": list(map(escaped, head)), "scores": parts}


def _below(result: Result, task: str, rows: Sequence[Row]) -> list[str]:
    """Notes on the runs."""
    runs = [run for run in result.runs if run.task == task]
    collapsed_notes = [f"Collapsed predictions: {text}" for text in collapsed_runs(runs)]
    row_notes = notes([row._replace(failed=0) for row in rows], len(result.study.seeds))
    return [*sentences(cautions(result, task)), *collapsed_notes, *row_notes]
