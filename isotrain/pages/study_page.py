"""HTML page of a study: answer, differences, isotropy, tables, how to repeat it."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from isotrain.console import counted
from isotrain.pages.page import Figures, Section, page, piece
from isotrain.pages.run_tables import Table
from isotrain.pages.study_answer import CAUTION, faults, summary, task_answers
from isotrain.pages.study_figures import method_looks
from isotrain.pages.study_sections import (
    difference_section,
    layer_section,
    scatter_section,
    training_section,
)
from isotrain.results.curves import isotropy_curves
from isotrain.results.frame import ALL, Row, is_score
from isotrain.results.readings import base_of, label, readings
from isotrain.results.result import Result
from isotrain.results.words import caption, collapsed_runs, legend, notes, score_name, score_table
from isotrain.runs.files import replace_text

MOST_OPEN = 40  # lines of a table that is not folded


def write_study_page(folder: Path, result: Result) -> Path:
    """Write `study.html` of a study, with `figures/*.svg` and `*.png`; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Figures(folder / "figures")
    study = result.study
    looks = method_looks(list(study.methods), study.baseline)
    curves = isotropy_curves(result.runs, result.headline)
    found = [difference_section(drawn, result, looks)]
    of_isotropy = [
        scatter_section(drawn, result, looks),
        layer_section(drawn, result, curves, looks),
        training_section(drawn, result, curves, looks),
    ]
    none = piece("note", text="No isotropy was measured in these runs.")
    found += [s for s in of_isotropy if s] or [Section("Isotropy", none)]
    found.append(_compared(result))
    for kind in result.kinds if result.rows else []:
        aside = "" if kind == ALL else f" {kind} predictions"
        found.append(Section(f"All numbers{aside}", _numbers(result, kind)))
    if collapsed := collapsed_runs(result.runs):
        found.append(Section("Collapsed predictions", piece("items", texts=collapsed)))
    if result.gaps:
        missing = piece("items", texts=list(map(str, result.gaps)))
        title = f"All {len(result.gaps):,} that are missing"
        if len(result.gaps) > MOST_OPEN:
            missing = piece("folded", title=title, body=missing)
        found.append(Section("What is missing", missing))
    found += [
        Section("Repeat this study", _repeat(result)),
        Section("How to read it", _how(result)),
    ]
    lead = piece(
        "study_answer",
        question=result.question[:1].upper() + result.question[1:],
        grave=faults(result),
        summary=summary(result),
        tasks=task_answers(result),
        caution=CAUTION,
    )
    text = page(f"{result.kind.capitalize()} {study.name}", _facts(result), lead, found)
    replace_text(folder / "study.html", text)
    return folder / "study.html"


def _facts(result: Result) -> list[str]:
    """Sizes, encoder, code and the day of the last run."""
    study, runs = result.study, result.runs
    sizes = (study.tasks, "task"), (study.methods, "method"), (study.seeds, "seed")
    planned = " × ".join(counted(len(found), noun) for found, noun in sizes)
    done = f"{len(runs):,} of {result.n_planned:,} runs finished" if result.n_planned else ""
    codes = ", ".join(dict.fromkeys(run.code for run in runs if run.code))
    newest = max((run.finished_at for run in runs), default="")[:10]
    return [fact for fact in (planned, done, result.encoder, codes, newest) if fact]


def _compared(result: Result) -> Section:
    """Tasks and methods with what makes them."""
    study = result.study
    tables = [
        Table(title, ["name", "overrides"], [[name, " ".join(own)] for name, own in of.items()])
        for title, of in (("Tasks", study.tasks), ("Methods", study.methods))
    ]
    body = piece("tables", found=tables)
    if len(study.methods) > MOST_OPEN // 4:
        body = piece("folded", title="Tasks and methods with their overrides", body=body)
    texts = [f"Baseline: {study.baseline}. Seeds: {', '.join(map(str, study.seeds))}."]
    if result.overrides:
        shared = " ".join(result.overrides)
        texts.append(Markup("Overrides of every run: <code>{}</code>").format(shared))
    return Section("What was compared", body + piece("items", texts=texts))


def _numbers(result: Result, kind: str) -> Markup:
    """A table for each score of each task; those of isotropy folded."""
    body = Markup()
    for task in result.study.tasks:
        table = result.table(task, kind)
        for of_scores in (True, False):
            own = {key: rows for key, rows in table.items() if is_score(key) == of_scores}
            if own:
                tables = piece(
                    "tables", found=[_table(rows) for rows in own.values()], compact=True
                )
                n_seeds = len(result.study.seeds)
                notes_of = {key: notes(rows, n_seeds) for key, rows in own.items()}
                texts = [
                    f"{score_name(k)}: {text}."
                    for k, own_notes in notes_of.items()
                    for text in own_notes
                ]
                tables += piece("items", texts=texts) if texts else Markup()
                title = f"Isotropy on {task}"
                body += tables if of_scores else piece("folded", title=title, body=tables)
    return body


def _table(rows: Sequence[Row]) -> Table:
    head, *lines = score_table(rows)
    return Table(f"{rows[0].task}, {caption(rows)}", head, lines, rows[0].score)


def _repeat(result: Result) -> Markup:
    if not result.command:
        return piece("note", text="The command was not recorded.")
    note = (
        "Run it in the folder that the study was started in: paths are relative to that one. Runs "
        "that are finished there are kept, and only what is missing is trained."
    )
    return piece("code", text=result.command) + piece("items", texts=[note])


def _how(result: Result) -> Markup:
    texts = legend(result.study, result.rows, result.gaps)
    texts += [
        f"{label(metric)}: {reading.text}"
        for metric in result.headline
        if (reading := readings().get(base_of(metric)))
    ]
    texts += [f"Methods of this study: {'; '.join(result.works)}."] if result.works else []
    return piece("items", texts=texts)
