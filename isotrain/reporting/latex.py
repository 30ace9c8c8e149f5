"""`table.tex`: a study's tables for a paper, in booktabs; captions carry n and the methods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from isotrain.pages.study_words import by_arm
from isotrain.reporting.cells import (
    collapsed,
    detail_cells,
    heading,
    marked,
    names_of,
    notes_of,
    number,
    p_text,
)
from isotrain.reporting.findings import Findings, cautions
from isotrain.reporting.table import Line

Part = tuple[str, Sequence[Sequence[str]]]  # a title and the lines below it
OPENING = "% In the preamble: \\usepackage{booktabs}"
HEADING = ("arm", "n", "mean ± sd", "difference", "p Holm")
TOO_WIDE = ("test", "seeds for a point")  # columns of table.md that a page of a paper cannot hold
MOST_LETTERS = 18  # of the name of an arm: a table is no wider than the text at 10 pt
SIGNS = {  # of a text, as LaTeX prints them
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def latex(found: Findings) -> str:
    """One `table` a task, no wider than the text, with what to know of its runs below it.

    Its second part has pairs, p and intervals over rows and seeds of the differences.
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
        *(rf"\caption{{{_caption(found, task, lines, aside)}}}", rf"\label{{tab:{label}}}"),
    ]
    by_score = [
        [line for line in lines if line.score == score]
        for score in dict.fromkeys(line.score for line in lines)
    ]
    parts: list[Part] = [
        (heading(own), [_cells(line, names[line.arm]) for line in own]) for own in by_score
    ]
    published = {} if aside else study.published.get(task, {})
    if published:
        base = published.get(study.baseline)
        gaps = {
            arm: "" if base is None or arm == study.baseline else number(value - base)
            for arm, value in published.items()
        }
        cells = [
            (names.get(arm, arm), "", number(published[arm]), gap, "") for arm, gap in gaps.items()
        ]
        parts.append(("published", cells))
    written += _tabular(HEADING, parts)
    if details := detail_cells(lines, names, TOO_WIDE):
        rows = iter(details[1:])
        compared = [[line for line in own if line.comparison] for own in by_score]
        more = [(own[0].score, [next(rows) for _ in own]) for own in compared if own]
        written += [r"\par\medskip", *_tabular(details[0], more)]
    below = _below(found, task, lines, names)
    below += [f"Published: {study.published_source}."] if published else []
    if below:
        text = " ".join(map(escaped, below))
        written.append(rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize\raggedright {text}}}")
    return "\n".join([*written, r"\end{table}"])


def _tabular(head: Sequence[str], parts: Sequence[Part]) -> list[str]:
    """A table of lines below a title each."""
    found = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", _line(head)]
    for title, lines in parts:
        found += [r"\midrule", _across(title, len(head)), *map(_line, lines)]
    return [*found, r"\bottomrule", r"\end{tabular}"]


def _cells(line: Line, name: str) -> tuple[str, ...]:
    """An arm and its difference, under `HEADING`."""
    own, about = line.own, line.comparison.difference if line.comparison else None
    difference = ""
    if about is not None:
        half = None if about.high is None else about.high - about.mean
        difference = _with(about.mean, half)
    arm = marked(name, line)
    return (arm, str(own.n), _with(own.mean, own.sd), difference, p_text(line.p_holm))


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
    notes: dict[str, dict[str, None]] = {}
    for line in lines:  # failed runs are among the cautions
        own = notes_of(line._replace(n_failed=0), len(found.study.seeds))
        notes.setdefault(line.arm, {}).update(dict.fromkeys(own))
    texts += by_arm(notes)
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
        f"over n = {n} seeds; N: the rows that a score is computed on. Difference: to "
        f"{study.baseline}, paired by seed, ± half of its 95 % t interval."
    )
    if named:
        text += (
            f" p: two-sided, by {named}; p Holm: adjusted over the arms of a score after Holm. "
            "Over rows and seeds: 95 % interval of the difference for other rows and other seeds."
        )
    if any(line.comparison and line.comparison.p_equivalent is not None for line in lines):
        text += (
            f" p equivalent: of a difference beyond ±{study.margin:g}, by two one-sided t tests, "
            "not corrected."
        )
    if any(line.degenerate for line in lines):
        text += " †: runs behind it are degenerate, nothing is claimed."
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


def _across(text: str, n_columns: int) -> str:
    return rf"\multicolumn{{{n_columns}}}{{l}}{{\emph{{{escaped(text)}}}}} \\"
