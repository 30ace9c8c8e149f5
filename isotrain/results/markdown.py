"""`table.md`: the tables of a study, and how to read them."""

import re
from collections.abc import Iterable, Sequence
from textwrap import TextWrapper

from isotrain.results.frame import ALL, Row
from isotrain.results.result import Result, mixtures
from isotrain.results.runs import Run
from isotrain.results.words import (
    caption,
    collapsed_runs,
    legend,
    notes,
    score_table,
)

WIDTH = 120


def markdown(result: Result) -> str:
    """Finished and planned runs; missing or mixed results; the tables; a legend."""
    study, runs = result.study, result.runs
    sizes = f"{len(study.tasks)} × {len(study.methods)} × {len(study.seeds)}"
    lines = [f"# {result.kind.capitalize()} {study.name}", ""]
    lines += [f"Tasks × methods × seeds: {sizes}; {len(runs)} of {result.n_planned} runs finished."]
    overrides = [f"every run: `{' '.join(result.overrides)}`"]
    overrides += [f"task {name}: `{' '.join(own)}`" for name, own in study.tasks.items() if own]
    overrides += [f"method {name}: `{' '.join(own)}`" for name, own in study.methods.items() if own]
    overrides.append(f"seeds: {', '.join(map(str, study.seeds))}")
    lines += ["", *bullets(overrides), ""]
    lines += _listed("Changed since the first run started", result.changes)
    failed = [str(gap) for gap in result.gaps if gap.has_failed]
    lines += _listed("Failed; the numbers of a method are of the other seeds", failed)
    lines += _listed("Missing", [str(gap) for gap in result.gaps if not gap.has_failed])
    lines += mixed(runs)
    title = "Collapsed predictions; beside them (†) nothing is claimed, and a table without follows"
    lines += _listed(title, collapsed_runs(runs))
    touched = {run.task for run in runs if run.degenerate}
    for task in study.tasks:
        tables = {kind: result.table(task, kind) for kind in result.kinds}
        lines += ["", f"## {task}", ""] if tables[ALL] else []
        for kind, table in tables.items():
            if kind == ALL or task in touched:
                for rows in table.values():
                    lines += _score(rows, kind, len(study.seeds))
    lines += ["", *bullets(legend(study, result.rows, result.gaps))]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept) + "\n"  # no consecutive blank lines


def first_tables(text: str) -> str:
    r"""The part of a Markdown report that a terminal shows: down to the first table of each task.

    >>> first_tables("# Study x\n\n## rte\n\n### accuracy\n\n| a |\n\n### loss\n\n| b |\n")
    '# Study x\n\n## rte\n\n### accuracy\n\n| a |\n'
    """
    head, *tasks = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    kept = ["".join(re.split(r"^(?=### )", task, flags=re.MULTILINE)[:2]) for task in tasks]
    return "".join([head, *kept]).rstrip() + "\n"


def mixed(runs: Sequence[Run]) -> list[str]:
    """What is mixed among the runs, one list per heading."""
    return [line for what, own in mixtures(runs).items() for line in _listed(what, own)]


def bullets(texts: Iterable[str]) -> list[str]:
    """A Markdown list in lines of at most 120 characters."""
    wrapper = TextWrapper(
        WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in texts for line in wrapper.wrap(f"- {text}")]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Markdown table with aligned columns, header first; `|` and tags escaped."""
    lines = [[_escaped(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in [lines[0], rule, *lines[1:]]
    ]


def _escaped(cell: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", cell).replace("|", "\\|")


def _listed(title: str, texts: Sequence[str]) -> list[str]:
    return ["", f"{title}:", "", *bullets(texts), ""] if texts else []


def _score(rows: Sequence[Row], kind: str, n_seeds: int) -> list[str]:
    """The table of one score, with its notes."""
    aside = "" if kind == ALL else f", {kind} predictions"
    lines = ["", f"### {caption(rows)}{aside}", "", *aligned(score_table(rows)), ""]
    return [*lines, *bullets(notes(rows, n_seeds)), ""]
