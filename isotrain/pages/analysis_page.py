"""The page of an analysis: the question, pictures, tables, how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from markupsafe import Markup
from matplotlib.figure import Figure

from isotrain.pages.page import Figures, Section, page, piece, write_page
from isotrain.pages.run_tables import Table

MOST_OPEN = 40  # rows of a table that is not folded


class PageTable(NamedTuple):
    """A table of texts with notes below it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


class Shown(NamedTuple):
    """What the page of an analysis shows."""

    name: str
    question: str
    facts: Sequence[str]
    tables: Sequence[PageTable]
    pictures: Sequence[tuple[str, str, Figure, str]]  # name of files, title, figure, description
    command: str
    config: Mapping[str, Any]


def write_analysis_page(folder: Path, content: Shown) -> Path:
    """`analysis.html`, written with `figures/*.svg` and `*.png` into a folder; its path."""
    drawn = Figures(folder / "figures")
    sections = []
    for name, title, figure, description in content.pictures:
        part = drawn.add(figure, name, description)
        sections.append(Section(title, piece("grid", parts=[part], note=description, large=True)))
    sections += [Section(table.title, _table(table)) for table in content.tables]
    repeat = piece("code", text=content.command)
    keys = yaml.safe_dump(dict(content.config), sort_keys=False, allow_unicode=True)
    repeat += piece("folded", title="Configuration", body=piece("code", text=keys))
    sections.append(Section("Repeat this analysis", repeat))
    lead = Markup('<p class="question">{}</p>').format(content.question)
    return write_page(
        folder / "analysis.html",
        page(f"Analysis {content.name}", list(content.facts), lead, sections),
    )


def _table(table: PageTable) -> Markup:
    if not table.rows:
        return piece("note", text="Nothing was measured.")
    body = piece("tables", found=[Table("", table.columns, table.rows)], compact=True)
    if len(table.rows) > MOST_OPEN:
        body = piece("folded", title=f"All {len(table.rows):,} rows", body=body)
    return body + (piece("items", texts=table.notes) if table.notes else Markup())
