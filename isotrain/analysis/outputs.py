"""Outputs of an analysis: records and tables as CSV and Markdown, figures, one HTML page."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import yaml
from markupsafe import Markup
from pandas import DataFrame

from isotrain.analysis.published import Beside, published_table
from isotrain.analysis.show import Picture, Table, texts
from isotrain.analysis.types import Analysis, Outcome
from isotrain.console import counted, say
from isotrain.pages import run_tables
from isotrain.pages.page import Figures, Section, page, piece
from isotrain.results.markdown import aligned
from isotrain.results.run_frames import csv_text
from isotrain.runs.files import replace_text

MOST_PRINTED = 40  # rows of a table in a terminal
WIDTH = 116  # of a note there
MOST_OPEN = 40  # rows of a table that is not folded
FIGURE = Markup("<figure><h3>{}</h3>{}<figcaption>{}</figcaption></figure>")


def write_outputs(
    folder: Path,
    analysis: Analysis,
    outcome: Outcome,
    compared: Sequence[Beside],
    record: Mapping[str, Any],
) -> None:
    """Write `records.csv`, one CSV per table, figures and `analysis.html`; print the tables."""
    tables = [*analysis.tables(outcome)]
    if compared:
        tables.append(published_table(compared, str(record["encoder"])))
    replace_text(folder / "records.csv", _csv(DataFrame(outcome.records, dtype=object)))
    for table in tables:
        found = DataFrame(list(table.rows), columns=list(table.columns), dtype=object)
        replace_text(folder / f"{table.name}.csv", _csv(found))
    config = record["config"]
    facts = [f"weights: {record['weights']}", f"data: {record['data']}", f"seed {config['seed']}"]
    facts += [f"before and after {config['from_run']}"] * bool(config["from_run"])
    path = write_page(folder, analysis, facts, tables, analysis.pictures(outcome), record)
    for table in tables:
        _print(table)
    say(f"page: {path}")


def _csv(found: DataFrame) -> str:
    """Cells at full precision; empty if not finite."""
    return csv_text(found.where(~found.isin([math.inf, -math.inf])))


def _print(table: Table) -> None:
    say(f"\n{table.title}")
    rows = [list(table.columns), *texts(table.rows[:MOST_PRINTED])]
    for line in aligned([[" ".join(cell.split()) for cell in row] for row in rows]):
        say(line)
    if len(table.rows) > MOST_PRINTED:
        say(f"... {len(table.rows) - MOST_PRINTED} more rows in {table.name}.csv")
    for note in table.notes:
        say(fill(note, WIDTH, initial_indent="  ", subsequent_indent="    "))


def write_page(
    folder: Path,
    analysis: Analysis,
    facts: Sequence[str],
    tables: Sequence[Table],
    pictures: Iterable[Picture],
    record: Mapping[str, Any],
) -> Path:
    """`analysis.html`, written with `figures/*.svg` and `*.png` into a folder; its path.

    The page needs no other file and no network. Figures stand side by side above the tables; a
    table of more than 40 rows is folded.
    """
    drawn = Figures(folder / "figures")
    panels = [
        FIGURE.format(p.title, drawn.add(p.figure, p.name, p.description), p.description)
        for p in pictures
    ]
    figures = Markup('<div class="grid large">{}</div>').format(Markup().join(panels))
    sections = [Section("Figures", figures)] if panels else []
    sections += [Section(table.title, _table(table)) for table in tables]
    repeat = piece("code", text=shlex.join(["isotrain", "analyze", *record["overrides"]]))
    keys = yaml.safe_dump(dict(record["config"]), sort_keys=False, allow_unicode=True)
    repeat += piece("folded", title="Configuration", body=piece("code", text=keys))
    sections.append(Section("Repeat this analysis", repeat))
    lead = Markup('<p class="question">{}</p>').format(analysis.question)
    text = page(f"Analysis {analysis.name}", list(facts), lead, sections)
    replace_text(folder / "analysis.html", text)
    return folder / "analysis.html"


def _table(table: Table) -> Markup:
    n_rows = counted(len(table.rows), "row")
    body = piece(
        "tables", found=[run_tables.Table(n_rows, table.columns, texts(table.rows))], compact=True
    )
    if len(table.rows) > MOST_OPEN:
        body = piece("folded", title=f"All {n_rows}", body=body)
    return body + (piece("items", texts=table.notes) if table.notes else Markup())
