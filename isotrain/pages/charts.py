"""Charts as Vega-Lite specifications: dicts over rows of numbers, for pages and for files.

A page embeds a specification with the library that draws it; `picture` draws the same one for a
file. A parameter with `by(id)` follows the control of a page with that id.
"""

import base64
import gzip
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import vl_convert

from isotrain.runs.files import replace_bytes

Spec = dict[str, Any]
Values = Iterable[Mapping[str, Any]]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b4fb5", "#444444")
GREY = "#666666"
ALL = "all"  # of a control that highlights
WIDTH, HEIGHT = 340, 215  # pixels of a picture; on a page a chart is as wide as its column
LAYERS = {"scheme": {"name": "viridis", "extent": [0, 0.88]}}  # the brightest is too faint on white
SMALL_POINT, POINT = 18, 55  # square pixels
LOOK: Spec = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "title": {"anchor": "start", "fontSize": 12.5, "fontWeight": 600, "subtitleColor": GREY},
    "axis": {"titleFontWeight": "normal", "gridOpacity": 0.5, "labelOverlap": "greedy"}
    | {"labelFontSize": 11, "titleFontSize": 11.5, "labelSeparation": 5},
    "legend": {
        "orient": "bottom",
        "title": None,
        "columns": 3,
        "labelLimit": 170,
        "labelFontSize": 11,
    }
    | {"symbolOpacity": 1, "symbolStrokeWidth": 2},
    "line": {"strokeWidth": 1.6},
}


def chart(values: Values, title: Any, description: str, layer: Sequence[Spec], **rest: Any) -> Spec:
    """The specification of marks over the same values; numbers have five digits."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "title": title,
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": [_short(row) for row in values]},
        "layer": list(layer),
        "config": LOOK,
        **rest,
    }


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _short(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_short(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def mark(
    kind: str, encoding: Spec, *transform: Spec, values: Values | None = None, **look: Any
) -> Spec:
    """A layer of marks over the values of its chart, or over `values`."""
    spec: Spec = {"mark": {"type": kind, **look}, "encoding": encoding}
    if transform:
        spec["transform"] = list(transform)
    if values is not None:
        spec["data"] = {"values": list(values)}
    return spec


def has_value(field: str) -> Spec:
    """A transform that keeps the rows with a value of a field."""
    return {"filter": f"isValid(datum.{field})"}


def tooltip(*names: str) -> list[Spec]:
    """The tooltip channel: fields shown for the mark under the pointer."""
    return [{"field": name} for name in names]


def by(name: str, value: Any) -> Spec:
    """A parameter bound to the page control with its name; elsewhere it has the value."""
    return {"name": name, "value": value, "bind": {"element": f"#{name}"}}


def faded(name: str, rest: float = 1.0) -> Spec:
    """Opacity of marks, which fade if a control selects another value of the field `name`."""
    is_chosen = f"{name} == '{ALL}' || '' + datum.{name} == {name}"
    return {"condition": {"test": is_chosen, "value": rest}, "value": 0.08}


def quantity(field: str, title: str | None = None, **rest: Any) -> Spec:
    """A channel of numbers whose axis need not hold 0."""
    defaults = {"scale": {"zero": False, "nice": True}, "title": title}
    return {"field": field, "type": "quantitative", **defaults, **rest}


def step_axis(title: str = "optimizer step") -> Spec:
    """The x channel of charts over training."""
    return quantity("step", title, axis={"tickMinStep": 1, "tickCount": 5}, scale={"zero": False})


def scale(names: Sequence[str], values: Sequence[Any]) -> Spec:
    """A scale that gives each name one of the values, in turn."""
    outputs = [values[k % len(values)] for k in range(len(names))]
    return {"domain": list(names), "range": outputs}


def only(**fields: str) -> list[Spec]:
    """Transforms that keep the rows whose fields have the values of parameters."""
    return [{"filter": f"datum.{field} == {name}"} for field, name in fields.items()]


def picture(spec: Spec, form: str = "png") -> bytes:
    """A chart as a file: png (at twice its size), svg or pdf."""
    fixed = deepcopy(spec)
    for panel in [fixed, *fixed.get("hconcat", ())]:
        if panel.get("width") == "container":
            panel["width"] = WIDTH
            panel.pop("autosize", None)
        for param in panel.get("params", ()):
            if "element" in str(param.get("bind")):
                del param["bind"]
    if form == "png":
        return vl_convert.vegalite_to_png(fixed, scale=2)
    if form == "pdf":
        return vl_convert.vegalite_to_pdf(fixed)
    return vl_convert.vegalite_to_svg(fixed).encode()


def packed(text: str) -> str:
    """A text as a page holds it: gzip in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


EXPORTS = "window.vegaEmbed = vegaEmbed;"  # what the library gives a page


@cache
def library() -> str:
    """The script that draws charts on a page: gzip in base64, built once per machine."""
    version = f"{version_of('vl-convert-python')}-{vl_convert.get_vega_version()}"
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = cache_folder / "isotrain" / f"vega-{version}.js.gz"
    with suppress(OSError, EOFError, zlib.error):
        return packed(gzip.decompress(file.read_bytes()).decode())  # with its checksum
    script = vl_convert.javascript_bundle(EXPORTS)
    with suppress(OSError):  # without a writable home it is built by each process
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(file, gzip.compress(script.encode(), mtime=0))
    return packed(script)
