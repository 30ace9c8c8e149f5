"""Outputs of an analysis: records and tables as CSV and in the terminal, one HTML page."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import yaml
from pandas import DataFrame

from isotrain.analysis.charts import Picture
from isotrain.analysis.published import Beside, published_table
from isotrain.analysis.show import Table, texts
from isotrain.analysis.types import Analysis, Outcome
from isotrain.console import counted, say
from isotrain.pages.page import Charts, render
from isotrain.pages.run_tables import Table as PageTable
from isotrain.results.markdown import aligned
from isotrain.results.run_frames import csv_text
from isotrain.runs.files import replace_text

MOST_PRINTED = 40  # rows of a table in a terminal
WIDTH = 116  # of a note in a terminal
MOST_OPEN = 40  # rows of a table that is not folded


def write_outputs(
    folder: Path,
    analysis: Analysis,
    outcome: Outcome,
    compared: Sequence[Beside],
    record: Mapping[str, Any],
) -> None:
    """Write `records.csv`, one CSV per table and `analysis.html`; print the tables."""
    tables = [*analysis.tables(outcome)]
    if compared:
        tables.append(published_table(compared, str(record["encoder"])))
    replace_text(folder / "records.csv", _csv(DataFrame(outcome.records, dtype=object)))
    for table in tables:
        frame = DataFrame(list(table.rows), columns=list(table.columns), dtype=object)
        replace_text(folder / f"{table.name}.csv", _csv(frame))
    config = record["config"]
    facts = [f"weights: {record['weights']}", f"data: {record['data']}", f"seed {config['seed']}"]
    facts += [f"before and after {config['from_run']}"] * bool(config["from_run"])
    code = record["environment"]
    facts.append(" ".join(filter(None, ("isotrain", code["isotrain"], code["git"]))))
    path = write_page(folder, analysis, facts, tables, analysis.pictures(outcome), record)
    for table in tables:
        _print(table)
    say(f"page: {path}")


def _csv(frame: DataFrame) -> str:
    """Cells at full precision; empty if not finite."""
    return csv_text(frame.where(~frame.isin([math.inf, -math.inf])))


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
    """Write `analysis.html`, which needs no other file and no network; its path.

    Charts are side by side above the tables; tables of more than 40 rows are folded.
    """
    charts = Charts()
    figures = [
        {
            "title": picture.title,
            "description": picture.description,
            "charts": [
                charts.add(f"{picture.name}_{k}" if k else picture.name, spec)
                for k, spec in enumerate(picture.specs)
            ],
        }
        for picture in pictures
    ]
    text = render(
        "analysis.html",
        charts,
        title=f"Analysis {analysis.name}",
        facts=list(facts),
        question=analysis.question,
        pictures=figures,
        tables=[
            {
                "title": table.title,
                "rows": counted(len(table.rows), "row"),
                "is_long": len(table.rows) > MOST_OPEN,
                "table": PageTable("", table.columns, texts(table.rows)),
                "notes": table.notes,
            }
            for table in tables
        ],
        command=shlex.join(["isotrain", "analyze", *record["overrides"]]),
        keys=yaml.safe_dump(dict(record["config"]), sort_keys=False, allow_unicode=True),
    )
    replace_text(folder / "analysis.html", text)
    return folder / "analysis.html"
