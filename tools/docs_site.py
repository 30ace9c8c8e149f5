"""Hooks of mkdocs: the API reference of the public names, and links that leave the docs.

`make docs` builds the site. The reference has a page for each package, generated from
`isotrain/__init__.pyi`; its text is the docstrings.
"""

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import isotrain

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("transforms", "objectives", "metrics", "plugins")  # in the nav; others on one page
HOOKS = ("isotrain.training.monitor.hooks.MonitorHooks", "isotrain.plugins.fit_hooks.FitHooks")


class Doctests(griffe.Extension):
    """Examples in docstrings are shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence each block of lines that begins with `>>>`."""
        if obj.docstring:
            fenced = r"```pycon\n\g<0>\n```"
            obj.docstring.value = re.sub(
                r"^>>> .*(\n.+)*", fenced, obj.docstring.value, flags=re.MULTILINE
            )


def reference() -> dict[str, str]:
    """Markdown of the reference by page: a line for mkdocstrings for each public name."""
    pages: dict[str, list[str]] = {name: [] for name in (*PAGES, "training")}
    for name, home in vars(isotrain)["_HOMES"].items():
        room = home.split(".")[1]
        pages[room if room in PAGES else "training"].append(f"{home}.{name}")
    pages["plugins"] += HOOKS
    return {
        page: f"# {page}\n\n" + "\n\n".join(f"::: {path}" for path in paths) + "\n"
        for page, paths in pages.items()
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    for page, text in reference().items():
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside the docs become their text and the path in the repository."""
    folder = (DOCS / page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (folder / target.partition("#")[0]).resolve()
        if "://" in target or path.is_relative_to(DOCS):
            return link[0]
        return f"{text} (`{path.relative_to(DOCS.parent)}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", shown, markdown)
