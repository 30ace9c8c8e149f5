"""`table.md`: the tables of a study to read, no wider than a terminal, and how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from isotrain.study.cells import (
    HEADING,
    PUBLISHED,
    collapsed,
    detail_cells,
    main_cells,
    monitor_of,
    n_rows_of,
    published_cells,
)
from isotrain.study.definition import Study
from isotrain.study.mixture import mixtures
from isotrain.study.results import Run
from isotrain.study.table import Row


def markdown(
    study: Study,
    tables: Mapping[str, Sequence[Row]],
    runs: Sequence[Run],
    missing: Sequence[str],
    n_planned: int,
    overrides: Iterable[str],
) -> str:
    """What was run, of how many planned runs; what is missing or mixed; the tables; a legend.

    `tables` maps `all`, and `without degenerate` where there are such runs, to rows.
    """
    sizes = f"{len(study.tasks)} × {len(study.arms)} × {len(study.seeds)}"
    lines = [f"# Study {study.name}", ""]
    lines += [f"Tasks × arms × seeds: {sizes}; {len(runs)} of {n_planned} runs finished."]
    lines += ["", f"- every run: `{' '.join(overrides)}`"]
    for kind, group in (("task", study.tasks), ("arm", study.arms)):
        lines += [f"- {kind} {name}: `{' '.join(own)}`" for name, own in group.items()]
    lines += [f"- seeds: {', '.join(map(str, study.seeds))}", ""]
    if missing:
        lines += ["Missing:", "", *(f"- {line}" for line in missing), ""]
    lines += mixed(runs)
    if told := collapsed(runs):
        lines += ["", "Degenerate runs; each table of their tasks stands with and without them:"]
        lines += ["", *(f"- {line}" for line in told), ""]
    touched = {run.task for run in runs if run.degenerate}
    for task in dict.fromkeys(row.task for row in tables["all"]):
        lines += ["", f"## {task}", ""]
        for name, rows in tables.items():
            if name == "all" or task in touched:
                aside = "" if name == "all" else f", {name} runs"
                lines += _tables([row for row in rows if row.task == task], aside)
        lines += _published(study, task, [row for row in tables["all"] if row.task == task])
    lines += legend(study)
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept) + "\n"  # never two blank lines


def legend(study: Study) -> list[str]:
    """How to read the tables: which number is of what, and by which method."""
    lines = [
        "N: rows a score was computed on; n: seeds. Mean, standard deviation (n − 1) and two-sided",
        "95 % t interval over seeds, which holds the spread between trainings, not that of the N",
        f"rows. Difference: the arm − {study.baseline}, paired over the seeds that both have, with",
        "its t interval. One seed, or seeds that all agree, give no interval and no p. Every",
        "finished run counts; nothing is the best of several.",
        "",
        "p: two-sided, of no difference; by all flips of signs (permutation) for 8 to 40 pairs, by",
        "the paired t test (t) otherwise. p Holm: p adjusted for the arms of one task and one",
        "score; not for several tasks or scores. Intervals are not adjusted.",
        "",
        "Seeds for a point: the fewest whose paired t test sees 0.01 with power 0.8, two-sided at",
        "5 %, at the sd of the differences here. Over rows and seeds: 95 % interval of the",
        "difference for other rows and other seeds (N × n), by a bootstrap of the rows and the",
        "spread over seeds; empty where runs kept no predictions of the same rows.",
    ]
    if study.margin is not None:
        lines += [
            "",
            "p equivalent: the larger p of two one-sided t tests against the margin of",
            f"±{study.margin:g}; a small one says that the difference is smaller than that.",
        ]
    return lines


def mixed(runs: Sequence[Run]) -> list[str]:
    """What is mixed among the runs, as a list below a heading each."""
    lines: list[str] = []
    for what, own in mixtures(runs).items():
        lines += ["", f"Mixed {what}:", "", *(f"- {line}" for line in own), ""]
    return lines


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Markdown table lines with columns of one width; the first line is the heading.

    >>> aligned([("arm", "n"), ("none", "3")])
    ['| arm  | n |', '| ---- | - |', '| none | 3 |']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in [lines[0], rule, *lines[1:]]
    ]


def _tables(rows: Sequence[Row], aside: str) -> list[str]:
    """For each score of a task a table of the arms, and one of what else is known."""
    lines: list[str] = []
    for score in dict.fromkeys(row.score for row in rows):
        own = [row for row in rows if row.score == score]
        lines += ["", f"### {score}, N = {n_rows_of(own)}{aside}", ""]
        lines += aligned([HEADING, *map(main_cells, own)])
        if details := detail_cells(own):
            lines += ["", *aligned(details)]
    return [*lines, ""]


def _published(study: Study, task: str, rows: Sequence[Row]) -> list[str]:
    if not (cells := published_cells(study, task, rows)):
        return []
    heading = f"### Published, beside {monitor_of(rows) or 'what is finished'} here"
    source = f"Published: {study.published_source}"
    return ["", heading, "", *aligned([PUBLISHED, *cells]), "", source, ""]
