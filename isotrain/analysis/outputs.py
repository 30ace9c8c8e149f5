"""What an analysis leaves to read: records and tables as CSV and Markdown, figures, one page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrain.analysis.published import Beside, described
from isotrain.analysis.types import Analysis, Cell, Outcome, Record, Table
from isotrain.pages.analysis_page import PageTable, Shown, write_analysis_page
from isotrain.pages.summary import say
from isotrain.reporting.markdown import aligned
from isotrain.whole_files import replace_text

DIGITS = 4  # of a number in a table to read; CSV files have them all
MOST_PRINTED = 40  # rows of a table in a terminal


def write_outputs(
    folder: Path,
    analysis: Analysis,
    outcome: Outcome,
    compared: Sequence[Beside],
    record: Mapping[str, Any],
    encoder: str,
) -> None:
    """Write `records.csv`, a CSV file a table, `tables.md`, figures and `analysis.html`; print."""
    tables = [*analysis.tables(outcome)]
    if compared:
        tables.append(published_table(compared, encoder))
    replace_text(folder / "records.csv", records_csv(outcome.records))
    for table in tables:
        replace_text(folder / f"{table.name}.csv", csv_text([table.columns, *table.rows]))
    replace_text(folder / "tables.md", markdown(analysis, tables, record))
    pictures = [*analysis.pictures(outcome)]
    content = Shown(
        name=analysis.name,
        question=analysis.question,
        facts=[encoder, str(record["data"]), f"seed {record['config']['seed']}"],
        tables=[
            PageTable(
                t.title, list(t.columns), [[*map(text, row)] for row in t.rows], list(t.notes)
            )
            for t in tables
        ],
        pictures=[(p.name, p.title, p.figure, p.description) for p in pictures],
        command="isotrain analyze " + " ".join(record["overrides"]),
        config=record["config"],
    )
    page = write_analysis_page(folder, content)
    for table in tables:
        _print(table)
    say(f"tables: {folder / 'tables.md'}; page: {page}")


def published_table(compared: Sequence[Beside], encoder: str) -> Table:
    """Published figures and what was measured here, side by side."""
    rows: list[list[Cell]] = []
    for one in compared:
        figure = one.published
        verdict = ("agrees" if one.agrees else "differs") if one.is_judged else ""
        if one.here is None:
            verdict = "not measured"
        rows.append(
            [
                described(figure),
                figure.value,
                figure.encoder,
                one.here,
                figure.tolerance,
                verdict,
                figure.source,
            ]
        )
    return Table(
        "published",
        "Published figures beside those measured here",
        ("figure", "published", "of", "here", "tolerance", "verdict", "source"),
        rows,
        (
            f"Measured here: {encoder}. A verdict is given where the published figure is of the "
            "same encoder and its tolerance is stated.",
        ),
    )


def markdown(analysis: Analysis, tables: Sequence[Table], record: Mapping[str, Any]) -> str:
    """All tables with their notes."""
    lines = [f"# {analysis.name}", "", analysis.question, ""]
    lines += [f"Encoder {record['encoder']}; data {record['data']}.", ""]
    for table in tables:
        lines += [f"## {table.title}", ""]
        cells = [[*map(text, row)] for row in table.rows]
        lines += aligned([list(table.columns), *cells]) if cells else ["nothing was measured"]
        lines += ["", *(f"- {note}" for note in table.notes), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def records_csv(records: Sequence[Record]) -> str:
    """A line a record; columns in the order in which they first appear."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    return csv_text([columns, *([record.get(key) for key in columns] for record in records)])


def csv_text(rows: Sequence[Sequence[Cell]]) -> str:
    r"""Lines of a CSV file; what is not defined is empty.

    >>> csv_text([("layer", "value"), (0, math.nan)])
    'layer,value\n0,\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow(["" if _is_nothing(cell) else cell for cell in row])
    return out.getvalue()


def text(cell: Cell) -> str:
    """A cell to read; a dash where nothing is defined.

    >>> text(0.123456), text(1234.5), text(3), text(None), text(1.5e-7)
    ('0.1235', '1234', '3', '–', '1.5e-07')
    """
    if _is_nothing(cell):
        return "–"
    if isinstance(cell, float):
        return f"{cell:.{DIGITS}g}" if abs(cell) < 1000 else f"{cell:.0f}"
    return str(cell)


def _is_nothing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def _print(table: Table) -> None:
    say(f"\n{table.title}")
    cells = [[*map(text, row)] for row in table.rows[:MOST_PRINTED]]
    for line in aligned([list(table.columns), *cells]) if cells else ["nothing was measured"]:
        say(line)
    if len(table.rows) > MOST_PRINTED:
        say(f"... {len(table.rows) - MOST_PRINTED} more rows in {table.name}.csv")
    for note in table.notes:
        say(f"  {note}")
