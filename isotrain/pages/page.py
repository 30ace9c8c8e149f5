"""Pages: a template with its numbers, tables and charts as one self-contained HTML file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from isotrain.pages.charts import Spec, library, packed, picture
from isotrain.results.names import score_name
from isotrain.results.readings import label
from isotrain.runs.files import replace_bytes
from isotrain.runs.numbers import number, p_equals, score_number, signed

HERE = Path(__file__).parent
FORMS = ("png", "svg", "pdf")  # of a chart's files
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters |= {
    "number": number,
    "count": lambda n: f"{n:,}",
    "score_number": score_number,
    "signed": signed,
    "p_equals": p_equals,
    "score_name": score_name,
    "metric": label,
    "short": lambda metric: label(metric).partition(" (")[0],
}


class Charts:
    """The charts of a page by the name of their files."""

    def __init__(self) -> None:
        self.specs: dict[str, Spec] = {}

    def add(self, name: str, spec: Spec) -> Markup:
        """Placeholder of a chart, which is drawn when a reader scrolls to it."""
        self.specs[name] = spec
        return Markup('<div class="chart" data-chart="{}"></div>').format(name)


def write_figures(folder: Path, specs: Mapping[str, Spec]) -> Path:
    """Write each chart in its initial state as `<name>.png`, `.svg` and `.pdf`; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in specs.items():
        for form in FORMS:
            replace_bytes(folder / f"{name}.{form}", picture(spec, form))
    return folder


def render(template: str, charts: Charts, **values: Any) -> str:
    """A page from its template, with its charts and the library that draws them."""
    return TEMPLATES.get_template(template).render(
        charts=packed(json.dumps(charts.specs, separators=(",", ":"))) if charts.specs else "",
        library=library() if charts.specs else "",
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        **values,
    )
