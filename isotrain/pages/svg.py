"""A matplotlib figure as SVG: as a file, and as a part of a page."""

from __future__ import annotations

import io
import re
import threading

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

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
