"""HTML page of an analysis: question, figures, tables, how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from markupsafe import Markup
from matplotlib.figure import Figure

from isotrain.console import counted
from isotrain.pages.page import Figures, Section, page, piece
from isotrain.pages.run_tables import Table
from isotrain.runs.files import replace_text

MOST_OPEN = 40  # rows of a table that is not folded
FIGURE = Markup("<figure><h3>{}</h3>{}<figcaption>{}</figcaption></figure>")


class PageTable(NamedTuple):
    """A table of texts with notes below it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


class Shown(NamedTuple):
    """Content of the page of an analysis."""

    name: str
    question: str
    facts: Sequence[str]
    tables: Sequence[PageTable]
    pictures: Sequence[tuple[str, str, Figure, str]]  # name of files, title, figure, description
    command: str
    config: Mapping[str, Any]


def write_analysis_page(folder: Path, content: Shown) -> Path:
    """`analysis.html`, written with `figures/*.svg` and `*.png` into a folder; its path.

    The page needs no other file and no network. Figures stand side by side above the tables; a
    table of more than 40 rows is folded.
    """
    drawn = Figures(folder / "figures")
    panels = [
        FIGURE.format(title, drawn.add(figure, name, description), description)
        for name, title, figure, description in content.pictures
    ]
    figures = Markup('<div class="grid large">{}</div>').format(Markup().join(panels))
    sections = [Section("Figures", figures)] if panels else []
    sections += [Section(table.title, _table(table)) for table in content.tables]
    repeat = piece("code", text=content.command)
    keys = yaml.safe_dump(dict(content.config), sort_keys=False, allow_unicode=True)
    repeat += piece("folded", title="Configuration", body=piece("code", text=keys))
    sections.append(Section("Repeat this analysis", repeat))
    lead = Markup('<p class="question">{}</p>').format(content.question)
    text = page(f"Analysis {content.name}", list(content.facts), lead, sections)
    replace_text(folder / "analysis.html", text)
    return folder / "analysis.html"


def _table(table: PageTable) -> Markup:
    if not table.rows:
        return piece("note", text="Nothing was measured.")
    n_rows = counted(len(table.rows), "row")
    body = piece("tables", found=[Table(n_rows, table.columns, table.rows)], compact=True)
    if len(table.rows) > MOST_OPEN:
        body = piece("folded", title=f"All {n_rows}", body=body)
    return body + (piece("items", texts=table.notes) if table.notes else Markup())
