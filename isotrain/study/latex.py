"""`table.tex`: a study's tables for a paper, in booktabs; captions carry n and the methods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from isotrain.study.cells import HEADING, main_cells, n_rows_of, published_cells
from isotrain.study.definition import Study
from isotrain.study.table import Row

OPENING = "% In the preamble: \\usepackage{booktabs}"
SIGNS = {  # of a text, as LaTeX prints them
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def latex(study: Study, tables: Mapping[str, Sequence[Row]]) -> str:
    """One `table` a task; `tables` maps `all`, and `without degenerate`, to rows.

    A second table of a task stands where leaving out degenerate runs changes it.
    """
    parts = [OPENING]
    for task in study.tasks:
        whole = [row for row in tables["all"] if row.task == task]
        for name, rows in tables.items():
            own = [row for row in rows if row.task == task]
            if own and (name == "all" or own != whole):
                parts.append(_table(study, task, own, "" if name == "all" else name))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    r"""A text with every sign that LaTeX reads as a command written out.

    >>> escaped("50 % of r_1 & r_2")
    '50 \\% of r\\_1 \\& r\\_2'
    """
    return "".join(SIGNS.get(sign, sign) for sign in text)


def _table(study: Study, task: str, rows: Sequence[Row], aside: str) -> str:
    label = re.sub(r"[^\w.-]", "-", "-".join(filter(None, (study.name, task, aside))))
    lines = [
        *(r"\begin{table}", r"\centering", rf"\caption{{{_caption(study, task, rows, aside)}}}"),
        *(rf"\label{{tab:{label}}}", rf"\begin{{tabular}}{{l{'r' * (len(HEADING) - 1)}}}"),
        *(r"\toprule", _line(HEADING)),
    ]
    for score in dict.fromkeys(row.score for row in rows):
        own = [row for row in rows if row.score == score]
        lines += [r"\midrule", _across(f"{score}, N = {n_rows_of(own)}")]
        lines += [_line(main_cells(row)) for row in own]
    if published := [] if aside else published_cells(study, task, rows):
        lines += [r"\midrule", _across(f"published: {study.published_source}")]
        for arm, value, difference, *_ in published:
            lines.append(_line((arm, "", value, "", "", difference, "", "")))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _caption(study: Study, task: str, rows: Sequence[Row], aside: str) -> str:
    """What the numbers are of, by which method."""
    seeds = sorted({row.own.n for row in rows})
    n = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    methods = {row.comparison.method for row in rows if row.comparison}
    tests = {"t": "paired t test", "permutation": "permutation of signs"}
    named = " or ".join(text for method, text in tests.items() if method in methods)
    text = (
        f"{study.name}, {task}{f', {aside} runs' if aside else ''}: mean, standard deviation and "
        f"two-sided 95 % t interval over n = {n} seeds; N rows a score. Difference: to "
        f"{study.baseline}, paired by seed, with its t interval."
    )
    if named:
        text += f" p: two-sided, by {named}, adjusted over the arms of a score after Holm."
    return escaped(text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(_cell, cells)) + r" \\"


def _cell(text: str) -> str:
    """A cell; every minus of a number as long as it should be."""
    words = escaped(text).split(" ")
    return " ".join(f"$-${w[1:]}" if w.startswith("-") and w[1:2].isdigit() else w for w in words)


def _across(text: str) -> str:
    return rf"\multicolumn{{{len(HEADING)}}}{{l}}{{\emph{{{escaped(text)}}}}} \\"
