"""Sections, tables and figures as one self-contained HTML file."""

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

from isotrain.runs.files import replace_text, replacing

HERE = Path(__file__).parent
PNG_DPI = 200
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


class Section(NamedTuple):
    """A part of a page with a heading."""

    title: str
    body: Markup
    key: str = ""  # anchor for links; default: its number
    is_folded: bool = False


class Figures:
    """Figures of a page, each also saved as `<name>.svg` and `<name>.png` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n = 0

    def add(self, figure: Figure, name: str, description: str, file: bool = True) -> Markup:
        """Add a figure to the page; `description` is its alternative text."""
        self.n += 1
        svg = svg_text(figure)
        if file:
            self.save(figure, name, svg)
        return Markup('<div class="panel">{}</div>').format(inline(svg, f"f{self.n}", description))

    def save(self, figure: Figure, name: str, svg: str | None = None) -> None:
        """Write the files of a figure, whether or not it is on the page."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_text(self.folder / f"{name}.svg", svg or svg_text(figure))
        with replacing(self.folder / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=PNG_DPI)


def piece(name: str, **values: Any) -> Markup:
    """Render a part of a page with the macro of that name in `pieces.html`.

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
    """Render a page: title, facts, the visible top part, sections, data as JSON."""
    return TEMPLATES.get_template("page.html").render(
        title=title,
        facts=facts,
        lead=lead,
        sections=sections,
        data=data,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
    )


_lock = threading.Lock()  # matplotlib's style is shared by all threads


def svg_text(figure: Figure) -> str:
    """The figure as an SVG document."""
    text = io.StringIO()
    # Text stays text, and ids depend only on the content.
    with _lock, matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "isotrain"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def inline(svg: str, name: str, description: str) -> Markup:
    """Convert an SVG document for inlining in a page that may have many.

    Ids are prefixed with `name`, so that they are unique; size and font adapt to the page. Lines
    with the gid `layer-3` become `<g class="layer" data-layer="3">`, likewise those of `method-3`.
    Coordinates are rounded to a tenth of a point.

    >>> print(inline('<?xml?><svg height="9pt"><g id="layer-3"/></svg>', "a", "<b>"))
    <svg role="img" aria-label="&lt;b&gt;"><g class="layer" data-layer="3"/></svg>
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'id="(layer|method)-(\d+)"', r'class="\1" data-\1="\2"', svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # nothing references a group
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' font-family: [^;"]*;?| transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r' (d|x|y|points)="[^"]*"', lambda found: _rounded(found[0]), svg)
    svg = re.sub(r">\s+<", "><", svg)
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s+(width|height|version|xmlns(:\w+)?)="[^"]*"', "", head)
    return Markup(f'{head} role="img" aria-label="{escape(description)}">{rest}')


def _rounded(attribute: str) -> str:
    return re.sub(r"(\.\d)\d+", r"\1", attribute).replace("\n", "")
