"""`table.md`: the tables of a study to read, no wider than a terminal, and how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import TextWrapper, wrap

from isotrain.reporting.cells import (
    HEADING,
    PUBLISHED,
    collapsed,
    detail_cells,
    heading,
    main_cells,
    monitor_of,
    names_of,
    published_cells,
    told_below,
)
from isotrain.reporting.findings import Findings
from isotrain.reporting.mixture import mixtures
from isotrain.reporting.statistics import LEVEL
from isotrain.reporting.table import FEWEST_FOR_A_POINT, Line
from isotrain.studies.definition import Study
from isotrain.studies.results import Run

WIDTH = 120


def markdown(found: Findings, overrides: Iterable[str]) -> str:
    """What was run, of how many planned runs; what is missing or mixed; the tables; a legend."""
    study, runs = found.study, found.runs
    sizes = f"{len(study.tasks)} × {len(study.arms)} × {len(study.seeds)}"
    names = names_of(study)
    lines = [f"# Study {study.name}", ""]
    lines += [f"Tasks × arms × seeds: {sizes}; {len(runs)} of {found.n_planned} runs finished."]
    told = [f"every run: `{' '.join(overrides)}`"]
    told += [f"task {name}: `{' '.join(own)}`" for name, own in study.tasks.items()]
    for name, own in study.arms.items():
        called = name if names[name] == name else f"{name}, in the tables {names[name]}"
        told.append(f"arm {called}: `{' '.join(own)}`")
    told.append(f"seeds: {', '.join(map(str, study.seeds))}")
    if study.margin is not None:
        told.append(f"margin: differences below ±{study.margin:g} count as none")
    lines += ["", *bullets(told), ""]
    lines += _listed("Changed since the first run started", found.changes)
    failed = [str(gap) for gap in found.gaps if gap.has_failed]
    lines += _listed("Failed; the numbers of an arm are of the other seeds", failed)
    lines += _listed("Missing", [str(gap) for gap in found.gaps if not gap.has_failed])
    lines += mixed(runs)
    degenerate = (
        "Degenerate runs; beside them (†) nothing is claimed, each table stands with and without "
        "them"
    )
    lines += _listed(degenerate, collapsed(runs))
    touched = {run.task for run in runs if run.degenerate}
    for task in dict.fromkeys(line.task for line in found.tables["all"]):
        lines += ["", f"## {task}", ""]
        for kind, table in found.tables.items():
            if kind == "all" or task in touched:
                aside = "" if kind == "all" else f", {kind} runs"
                lines += _tables([li for li in table if li.task == task], names, study, aside)
        lines += _published(study, task, [li for li in found.tables["all"] if li.task == task])
    lines += legend(found)
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept) + "\n"  # never two blank lines


def legend(found: Findings) -> list[str]:
    """How to read the tables: which number is of what, and by which method."""
    study, all_lines = found.study, found.tables["all"]
    counted = "Every finished run counts; nothing is the best of several."
    if any(line.best_of for line in all_lines):
        counted = (
            "Every finished run counts. The weights of a run were selected on dev: a score of dev "
            "is the best of its evaluations, higher than that of the same weights on other rows; "
            "one of test is of the selected weights, and selected nothing."
        )
    if any(gap.has_failed for gap in found.gaps):
        counted += " Failed runs have no score, and do not count: that may flatter their arm."
    texts = [
        "N: rows a score was computed on; n: seeds. Mean, standard deviation (n − 1) and two-sided "
        "95 % t interval over seeds, which holds the spread between trainings, not that of the N "
        f"rows. Difference: the arm − {study.baseline}, paired over the seeds that both have, with "
        "its t interval. One seed, or seeds that all agree, give no interval and no p. " + counted,
        "p: two-sided, of no difference; by all flips of signs (permutation) for 8 to 40 pairs, by "
        "the paired t test (t) otherwise. p Holm: p adjusted for the arms of one task and one "
        "score, those that were left out after they were run among them; not for several tasks or "
        "scores. Intervals are not adjusted.",
        "Seeds for a point: about the fewest with which a difference of 0.01 has p < "
        f"{LEVEL:g}/m with power 0.8 at the sd of the differences here; m comparisons, Holm's "
        "first step. By the power of the paired t test, which is near that of the flips of signs. "
        f"Given from {FEWEST_FOR_A_POINT} pairs on, without degenerate runs. From five seeds that "
        "sd is off by a factor of 0.6 to 2.9, and the number goes as its square. "
        "Over rows and seeds: 95 % interval of the difference for other rows and other seeds, by a "
        "bootstrap of the rows and the spread over seeds.",
    ]
    if study.margin is not None:
        texts.append(
            "p equivalent: the larger p of two one-sided t tests against the margin of "
            f"±{study.margin:g}; a small one says that the difference is smaller than that. It is "
            "not corrected for several arms, tasks or scores, and not given beside degenerate runs."
        )
    return [line for text in texts for line in ["", *wrap(text, 96)]]


def mixed(runs: Sequence[Run]) -> list[str]:
    """What is mixed among the runs, as a list below a heading each."""
    return [line for what, own in mixtures(runs).items() for line in _listed(what, own)]


def bullets(texts: Iterable[str]) -> list[str]:
    """A Markdown list whose lines are no wider than the tables.

    >>> bullets(["arm none: `isotropy=none`"])
    ['- arm none: `isotropy=none`']
    """
    wrapper = TextWrapper(
        WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [line for text in texts for line in wrapper.wrap(f"- {text}")]


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


def _listed(title: str, texts: Sequence[str]) -> list[str]:
    return ["", f"{title}:", "", *bullets(texts), ""] if texts else []


def _tables(lines: Sequence[Line], names: Mapping[str, str], study: Study, aside: str) -> list[str]:
    """For each score of a task a table of the arms, one of what else is known, and notes."""
    found: list[str] = []
    for score in dict.fromkeys(line.score for line in lines):
        own = [line for line in lines if line.score == score]
        found += ["", f"### {heading(own)}{aside}", ""]
        found += aligned([HEADING, *(main_cells(line, names[line.arm]) for line in own)])
        if details := detail_cells(own, names):
            found += ["", *aligned(details)]
        found += ["", *bullets(told_below(own, len(study.seeds)))]
    return [*found, ""]


def _published(study: Study, task: str, lines: Sequence[Line]) -> list[str]:
    if not (cells := published_cells(study, task, lines)):
        return []
    title = f"### Published, beside {monitor_of(lines) or 'what is finished'} here"
    source = wrap(f"Published: {study.published_source}", WIDTH)
    return ["", title, "", *aligned([PUBLISHED, *cells]), "", *source, ""]
