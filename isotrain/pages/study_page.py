"""The page of a study: the answer in words, differences, isotropy, tables, how to repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from isotrain.pages.arm_looks import arm_looks
from isotrain.pages.page import Figures, Section, page, piece, write_page
from isotrain.pages.readings import READINGS, base_of, label
from isotrain.pages.study_answer import CAUTION, LEVEL, POINT, faults, summary, task_answers
from isotrain.pages.study_content import ScoreRow, StudyContent
from isotrain.pages.study_sections import (
    difference_section,
    layer_section,
    scatter_section,
    training_section,
)
from isotrain.pages.study_tables import (
    notes_below,
    override_table,
    reasons,
    run_tables,
    value_tables,
)

MOST_OPEN = 40  # lines of a table that is not folded


def write_study_page(folder: Path, content: StudyContent) -> Path:
    """`study.html` of a study, written with `figures/*.svg` and `*.png` into its folder; its path.

    It is whole for any content: without seeds to compare, without isotropy, without a finished
    run it says so.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Figures(folder / "figures")
    looks = arm_looks([arm.name for arm in content.arms], content.baseline)
    found = [_compared(content), difference_section(drawn, content, looks)]
    of_isotropy = scatter_section, layer_section, training_section
    isotropy = [section for draw in of_isotropy if (section := draw(drawn, content, looks))]
    none = piece("note", text="No isotropy was measured in these runs.")
    found += isotropy or [Section("Isotropy", none)]
    if content.rows:
        found.append(Section("All numbers", _numbers(content, content.rows)))
    if content.rows_without_degenerate:
        body = _numbers(content, content.rows_without_degenerate)
        found.append(Section("All numbers without degenerate runs", body))
    found += [Section("Runs", _runs(content))] if content.runs else []
    if content.missing:
        found.append(Section("What is missing", _missing(content.missing)))
    found += [
        Section("Repeat this study", _repeat(content)),
        Section("How to read it", _how(content)),
    ]
    lead = piece(
        "study_answer",
        question=content.question,
        grave=faults(content),
        summary=summary(content),
        tasks=task_answers(content),
        caution=CAUTION,
    )
    text = page(f"Study {content.name}", _facts(content), lead, found)
    return write_page(folder / "study.html", text)


def _facts(content: StudyContent) -> list[str]:
    sizes = (content.tasks, "task"), (content.arms, "arm"), (content.seeds, "seed")
    planned = " × ".join(f"{len(found)} {noun}{'s' * (len(found) != 1)}" for found, noun in sizes)
    done = f"{len(content.runs):,} of {content.n_planned:,} runs finished"
    return [planned, done if content.n_planned else "", *content.facts]


def _compared(content: StudyContent) -> Section:
    """Tasks and arms with what makes them."""
    tables = [override_table("Tasks", content.tasks), override_table("Arms", content.arms)]
    body = piece("tables", found=tables)
    if len(content.arms) > MOST_OPEN // 4:
        body = piece("folded", title="Tasks and arms with their overrides", body=body)
    texts = [f"Baseline: {content.baseline}. Seeds: {', '.join(map(str, content.seeds))}."]
    if content.overrides:
        shared = " ".join(content.overrides)
        texts.append(Markup("Overrides of every run: <code>{}</code>").format(shared))
    return Section("What was compared", body + piece("items", texts=texts))


def _numbers(content: StudyContent, rows: Sequence[ScoreRow]) -> Markup:
    """A table for each score of each task; those of isotropy folded."""
    body = Markup()
    for task in content.tasks:
        for of_scores in (True, False):
            if found := value_tables(rows, content, task.name, of_scores):
                tables = piece("tables", found=found, compact=True)
                title = f"Isotropy on {task.name}"
                if notes := notes_below(rows, task.name, of_scores):
                    tables += piece("items", texts=notes)
                body += tables if of_scores else piece("folded", title=title, body=tables)
    texts = [
        "n: seeds; N: rows of a value; sd: standard deviation (n − 1); p equivalent: of the "
        "hypothesis that the difference is as large as the margin or larger, not corrected.",
    ]
    if any(row.degenerate for row in rows):
        texts.append("†: runs behind the difference are degenerate, nothing is claimed of it.")
    if any(row.published is not None for row in rows) and content.published_source:
        texts.append(f"Published: {content.published_source}.")
    return body + piece("note", text=" ".join(texts))


def _runs(content: StudyContent) -> Markup:
    tables = run_tables(content)
    body = piece("tables", found=tables, compact=True)
    if told := reasons(content.runs):
        body += piece("items", texts=told)
    if sum(len(table.rows) for table in tables) > MOST_OPEN:
        return piece("folded", title=f"All {len(content.runs):,} finished runs", body=body)
    return body


def _missing(texts: Sequence[str]) -> Markup:
    body = piece("items", texts=texts)
    title = f"All {len(texts):,} that are missing"
    return piece("folded", title=title, body=body) if len(texts) > MOST_OPEN else body


def _repeat(content: StudyContent) -> Markup:
    if not content.commands:
        return piece("note", text="The command was not recorded.")
    notes = [
        "Run it in the folder that the study was started in: paths are relative to that one. Runs "
        "that are finished there are kept, and only what is missing is trained."
    ]
    return piece("code", text="\n".join(content.commands)) + piece("items", texts=notes)


def _how(content: StudyContent) -> Markup:
    equivalence = (
        f"The same within ±{content.margin:g}: two one-sided t tests at {LEVEL:.0%} find the "
        "difference within the margin that was stated with the study; their p is not corrected, "
        "and not given beside degenerate runs."
        if content.margin
        else "No margin was stated, so that nothing is called the same: it is undecided."
    )
    texts = [
        f"Differences are paired: an arm less {content.baseline} on each seed that both have. p is "
        "that of all flips of signs for 8 to 40 pairs, and of the paired t test otherwise; Holm's "
        "method corrects it for the arms of one task and one value, those that were left out after "
        "they were run among them.",
        equivalence,
        f"Seeds for a point: about the fewest with which a difference of {POINT:g} (one point of "
        f"accuracy) has p below {LEVEL:g}/m four times in five, at the spread seen here; m "
        "comparisons of a task and value, Holm's first step. By the power of the paired t test, "
        "which is near that of flips of signs. Given from 5 pairs on, without degenerate runs. "
        "From five seeds the spread is off by a factor of 0.6 to 2.9, and the number goes as its "
        "square.",
        "The interval over rows and seeds also draws the evaluated rows anew, and so is about "
        "other rows too; t intervals are about the rows that were used.",
        f"A score is the one on test where test has labels. {_selected(content)}",
        *(
            f"{label(m)}: range {r.span}; {r.says} ({r.source})."
            for m in content.metrics
            if (r := READINGS.get(base_of(m)))
        ),
        *([f"Methods of this study: {'; '.join(content.methods)}."] if content.methods else []),
    ]
    return piece("items", texts=texts)


def _selected(content: StudyContent) -> str:
    """Whether a score is the best of several."""
    if not any(row.best_of for row in content.rows):
        return "None is the best of several; every finished run counts."
    return (
        "The weights of a run were selected on dev: a score of dev is the best of its evaluations, "
        "higher than that of the same weights on other rows; one of test selected nothing. Every "
        "finished run counts."
    )
