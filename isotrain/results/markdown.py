"""Markdown from templates: `table.md`, the tables of a study, and how to read them."""

import re
from collections.abc import Iterable, Sequence
from textwrap import TextWrapper
from typing import Any

from isotrain.console import counted
from isotrain.results.findings import TEMPLATES, titled
from isotrain.results.result import Result, mixtures
from isotrain.results.words import caption, collapsed_runs, legend, notes, score_table

WIDTH = 120


def markdown(result: Result) -> str:
    """Finished and planned runs; missing or mixed results; the tables; a legend."""
    return rendered(
        "study.md.j2",
        result=result,
        study=result.study,
        mixed=titled(mixtures(result.runs)),
        collapsed=collapsed_runs(result.runs),
        touched={run.task for run in result.runs if run.degenerate},
        legend=legend(result.study, result.rows, result.gaps),
        caption=caption,
        score_table=score_table,
        notes=notes,
    )


def rendered(template: str, **values: Any) -> str:
    """A template's text, without consecutive blank lines."""
    return re.sub(r"\n{3,}", "\n\n", TEXTS.get_template(template).render(**values)).strip() + "\n"


def first_tables(text: str) -> str:
    r"""The part of a Markdown report that a terminal shows: down to the first table of each task.

    >>> first_tables("# Study x\n\n## rte\n\n### accuracy\n\n| a |\n\n### loss\n\n| b |\n")
    '# Study x\n\n## rte\n\n### accuracy\n\n| a |\n'
    """
    head, *tasks = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    first_parts = ["".join(re.split(r"^(?=### )", task, flags=re.MULTILINE)[:2]) for task in tasks]
    return "".join([head, *first_parts]).rstrip() + "\n"


def bullets(texts: Iterable[object]) -> str:
    """A Markdown list in lines of at most 120 characters."""
    wrapper = TextWrapper(
        WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(line for text in texts for line in wrapper.wrap(f"- {text}"))


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


TEXTS = TEMPLATES.overlay(trim_blocks=True, lstrip_blocks=True)
TEXTS.filters |= {"bullets": bullets, "aligned": aligned, "counted": counted}
