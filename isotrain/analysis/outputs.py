"""Outputs of an analysis: records and tables as CSV and Markdown, figures, one page."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from pandas import DataFrame

from isotrain.analysis.page import write_page
from isotrain.analysis.published import Beside, published_table
from isotrain.analysis.tables import Cell, Table, texts
from isotrain.analysis.types import Analysis, Outcome
from isotrain.console import say
from isotrain.reporting.markdown import aligned
from isotrain.reporting.run_frames import csv_text
from isotrain.runs.files import replace_text

MOST_PRINTED = 40  # rows of a table in a terminal
WIDTH = 116  # of a note there


def write_outputs(
    folder: Path,
    analysis: Analysis,
    outcome: Outcome,
    compared: Sequence[Beside],
    record: Mapping[str, Any],
) -> None:
    """Write `records.csv`, one CSV per table, `tables.md`, figures and `analysis.html`; print."""
    tables = [*analysis.tables(outcome)]
    if compared:
        tables.append(published_table(compared, str(record["encoder"])))
    replace_text(folder / "records.csv", _csv(DataFrame(outcome.records, dtype=object)))
    for table in tables:
        found = DataFrame(list(table.rows), columns=list(table.columns), dtype=object)
        replace_text(folder / f"{table.name}.csv", _csv(found))
    facts = [f"weights: {record['weights']}", f"data: {record['data']}"]
    facts.append(f"seed {record['config']['seed']}")
    if record["config"]["from_run"]:
        facts.append(f"before and after {record['config']['from_run']}")
    replace_text(folder / "tables.md", markdown(analysis.name, analysis.question, facts, tables))
    page = write_page(folder, analysis, facts, tables, analysis.pictures(outcome), record)
    for table in tables:
        _print(table)
    say(f"tables: {folder / 'tables.md'}; page: {page}")


def _csv(found: DataFrame) -> str:
    """Cells at full precision; empty if not finite."""
    return csv_text(found.where(~found.isin([math.inf, -math.inf])))


def markdown(name: str, question: str, facts: Sequence[str], tables: Sequence[Table]) -> str:
    """All tables with their notes."""
    lines = [f"# {name}", "", question, "", *(f"- {fact}" for fact in facts), ""]
    for table in tables:
        notes = [f"- {note}" for note in table.notes]
        lines += [f"## {table.title}", "", *_lines(table, table.rows), "", *notes, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _lines(table: Table, rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The table in Markdown; a line break within a cell would end it."""
    cells = [
        [" ".join(cell.split()) for cell in row] for row in [list(table.columns), *texts(rows)]
    ]
    return aligned(cells) if rows else ["Nothing was measured."]


def _print(table: Table) -> None:
    say(f"\n{table.title}")
    for line in _lines(table, table.rows[:MOST_PRINTED]):
        say(line)
    if len(table.rows) > MOST_PRINTED:
        say(f"... {len(table.rows) - MOST_PRINTED} more rows in {table.name}.csv")
    for note in table.notes:
        for line in wrap(note, WIDTH, initial_indent="  ", subsequent_indent="    "):
            say(line)
