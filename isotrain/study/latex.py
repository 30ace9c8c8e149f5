"""`table.tex`: a study's tables for a paper, in booktabs; captions carry n and the methods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from isotrain.pages.study_words import by_arm
from isotrain.study.cells import (
    collapsed,
    heading,
    is_out_of_reach,
    names_of,
    number,
    p_text,
    reach_note,
)
from isotrain.study.findings import Findings, cautions
from isotrain.study.table import Line

OPENING = "% In the preamble: \\usepackage{booktabs}"
HEADING = ("arm", "n", "mean ± sd", "pairs", "difference", "p Holm")
MOST_LETTERS = 18  # of the name of an arm: a table is no wider than the text at 10 pt
SIGNS = {  # of a text, as LaTeX prints them
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def latex(found: Findings) -> str:
    """One `table` a task, no wider than the text, with what to know of its runs below it.

    A second table of a task stands where leaving out degenerate runs changes it.
    """
    parts = [OPENING]
    for task in found.study.tasks:
        whole = [line for line in found.tables["all"] if line.task == task]
        for name, lines in found.tables.items():
            own = [line for line in lines if line.task == task]
            if own and (name == "all" or own != whole):
                parts.append(_table(found, task, own, "" if name == "all" else name))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    r"""A text with every sign that LaTeX reads as a command written out.

    >>> escaped("50 % of r_1 & r_2")
    '50 \\% of r\\_1 \\& r\\_2'
    """
    return "".join(SIGNS.get(sign, sign) for sign in text)


def _table(found: Findings, task: str, lines: Sequence[Line], aside: str) -> str:
    study, names = found.study, names_of(found.study, MOST_LETTERS)
    label = re.sub(r"[^\w.-]", "-", "-".join(filter(None, (study.name, task, aside))))
    written = [
        *(r"\begin{table}", r"\centering\small\setlength{\tabcolsep}{4pt}"),
        rf"\caption{{{_caption(found, task, lines, aside)}}}",
        *(rf"\label{{tab:{label}}}", rf"\begin{{tabular}}{{l{'r' * (len(HEADING) - 1)}}}"),
        *(r"\toprule", _line(HEADING)),
    ]
    for score in dict.fromkeys(line.score for line in lines):
        own = [line for line in lines if line.score == score]
        written += [r"\midrule", _across(heading(own))]
        written += [_line(_cells(line, names[line.arm])) for line in own]
    published = {} if aside else study.published.get(task, {})
    if published:
        written += [r"\midrule", _across("published")]
        base = published.get(study.baseline)
        for arm, value in published.items():
            gap = "" if base is None or arm == study.baseline else number(value - base)
            written.append(_line((names.get(arm, arm), "", number(value), "", gap, "")))
    written += [r"\bottomrule", r"\end{tabular}"]
    below = _below(found, task, lines, names)
    below += [f"Published: {study.published_source}."] if published else []
    if below:
        text = " ".join(map(escaped, below))
        written.append(rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize\raggedright {text}}}")
    return "\n".join([*written, r"\end{table}"])


def _cells(line: Line, name: str) -> tuple[str, ...]:
    """An arm and its difference, under `HEADING`."""
    own, about = line.own, line.comparison.difference if line.comparison else None
    pairs, difference = "", ""
    if about is not None:
        half = None if about.high is None else about.high - about.mean
        pairs, difference = str(about.n), _with(about.mean, half)
    return (name, str(own.n), _with(own.mean, own.sd), pairs, difference, p_text(line.p_holm))


def _with(mean: float, spread: float | None) -> str:
    return number(mean) if spread is None else f"{number(mean)} ± {number(spread)}"


def _below(
    found: Findings, task: str, lines: Sequence[Line], names: Mapping[str, str]
) -> list[str]:
    """What to know of the runs, as sentences."""
    texts = [f"{short}: {arm}" for arm, short in names.items() if short != arm]
    texts += cautions(found, task)
    if degenerate := collapsed([run for run in found.runs if run.task == task]):
        texts.append(f"Degenerate runs: {'; '.join(degenerate)}")
    texts += by_arm({line.arm: [reach_note(line)] for line in lines if is_out_of_reach(line)})
    return [f"{text.rstrip('.')}." for text in texts]


def _caption(found: Findings, task: str, lines: Sequence[Line], aside: str) -> str:
    """What the numbers are of, by which method."""
    study = found.study
    seeds = sorted({line.own.n for line in lines})
    n = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    methods = {line.comparison.method for line in lines if line.comparison}
    tests = {"t": "paired t test", "permutation": "permutation of signs"}
    named = " or ".join(text for method, text in tests.items() if method in methods)
    text = (
        f"{study.name}, {task}{f', {aside} runs' if aside else ''}: mean and standard deviation "
        f"over n = {n} seeds; N rows a score. Difference: to {study.baseline}, paired by seed, ± "
        "half of its 95 % t interval."
    )
    if named:
        text += f" p: two-sided, by {named}, adjusted over the arms of a score after Holm."
    if any(line.best_of for line in lines):
        text += " The weights of each run were selected on dev."
    if failed := sum(g.has_failed and not g.score for g in found.gaps if g.task == task):
        n_task = len(study.arms) * len(study.seeds)
        text += f" {failed} of {n_task} runs failed; the numbers are of the others."
    return escaped(text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(_cell, cells)) + r" \\"


def _cell(text: str) -> str:
    """A cell; every minus of a number as long as it should be."""
    words = escaped(text).split(" ")
    return " ".join(f"$-${w[1:]}" if w.startswith("-") and w[1:2].isdigit() else w for w in words)


def _across(text: str) -> str:
    return rf"\multicolumn{{{len(HEADING)}}}{{l}}{{\emph{{{escaped(text)}}}}} \\"
