"""HTML page of an analysis: question, figures, tables, how to repeat it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from isotrain.analysis.plots import Picture
from isotrain.analysis.tables import Table, texts
from isotrain.analysis.types import Analysis
from isotrain.console import counted
from isotrain.pages import run_tables
from isotrain.pages.page import Figures, Section, page, piece
from isotrain.runs.files import replace_text

MOST_OPEN = 40  # rows of a table that is not folded
FIGURE = Markup("<figure><h3>{}</h3>{}<figcaption>{}</figcaption></figure>")


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
    command = shlex.join(["isotrain", "analyze", *record["overrides"]])
    repeat = piece("code", text=command)
    keys = yaml.safe_dump(dict(record["config"]), sort_keys=False, allow_unicode=True)
    repeat += piece("folded", title="Configuration", body=piece("code", text=keys))
    sections.append(Section("Repeat this analysis", repeat))
    lead = Markup('<p class="question">{}</p>').format(analysis.question)
    text = page(f"Analysis {analysis.name}", list(facts), lead, sections)
    replace_text(folder / "analysis.html", text)
    return folder / "analysis.html"


def _table(table: Table) -> Markup:
    if not table.rows:
        return piece("note", text="Nothing was measured.")
    n_rows = counted(len(table.rows), "row")
    body = piece(
        "tables", found=[run_tables.Table(n_rows, table.columns, texts(table.rows))], compact=True
    )
    if len(table.rows) > MOST_OPEN:
        body = piece("folded", title=f"All {n_rows}", body=body)
    return body + (piece("items", texts=table.notes) if table.notes else Markup())
