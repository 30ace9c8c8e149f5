"""Sections, tables and figures as one HTML file that needs nothing from outside."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from isotrain.runs.files import make_inside, replace_text, replacing

HERE = Path(__file__).parent
PNG_DPI = 200
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


class Section(NamedTuple):
    """A part of a page with a heading."""

    title: str
    body: Markup
    key: str = ""  # that links name; else its number
    is_folded: bool = False


class Figures:
    """Figures of a page, each also `<name>.svg` and `<name>.png` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n = 0

    def add(self, figure: Figure, name: str, description: str, file: bool = True) -> Markup:
        """A figure as a part of the page; `description` is for readers who do not see it."""
        self.n += 1
        svg = svg_text(figure)
        if file:
            self.save(figure, name, svg)
        return Markup('<div class="panel">{}</div>').format(inline(svg, f"f{self.n}", description))

    def save(self, figure: Figure, name: str, svg: str | None = None) -> None:
        """Write the files of a figure, which need not be in the page."""
        make_inside(self.folder.parent, self.folder)
        replace_text(self.folder / f"{name}.svg", svg or svg_text(figure))
        with replacing(self.folder / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=PNG_DPI)


def piece(name: str, **values: Any) -> Markup:
    """A part of a page, by the macro of that name in `pieces.html`.

    >>> print(piece("note", text="N < D").strip())
    <p class="note">N &lt; D</p>
    """
    module = TEMPLATES.get_template("pieces.html").module
    return Markup(getattr(module, name)(**values))


def page(
    title: str,
    facts: Sequence[str],
    lead: Markup,
    sections: Sequence[Section],
    data: Any = None,
) -> str:
    """A whole page: facts below its title, what a reader sees first, sections, data as JSON."""
    return TEMPLATES.get_template("page.html").render(
        title=title,
        facts=facts,
        lead=lead,
        sections=sections,
        data=data,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
    )


_lock = threading.Lock()  # matplotlib reads the style from a place that all threads share


def svg_text(figure: Figure) -> str:
    """The figure as an SVG document."""
    text = io.StringIO()
    # Text stays text, and ids depend on the content alone.
    with _lock, matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "isotrain"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def inline(svg: str, name: str, description: str) -> Markup:
    """An SVG document as a small part of a page that may have many.

    Its ids begin with `name`, so that no two figures share one, its size is that of the place it
    stands in, its font that of the page, and lines with the gid `layer-3` become
    `<g class="layer" data-layer="3">`, likewise those of `arm-3`.
    Coordinates are rounded to a tenth of a point.

    >>> print(inline('<?xml?><svg height="9pt"><g id="layer-3"/></svg>', "a", "<b>"))
    <svg role="img" aria-label="&lt;b&gt;"><g class="layer" data-layer="3"/></svg>
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'id="(layer|arm)-(\d+)"', r'class="\1" data-\1="\2"', svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # nothing refers to a group
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' font-family: [^;"]*;?| transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r' (d|x|y|points)="[^"]*"', lambda found: _rounded(found[0]), svg)
    svg = re.sub(r">\s+<", "><", svg)
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s+(width|height|version|xmlns(:\w+)?)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{escape(description)}">{rest}')


def _rounded(attribute: str) -> str:
    return re.sub(r"(\.\d)\d+", r"\1", attribute).replace("\n", "")
