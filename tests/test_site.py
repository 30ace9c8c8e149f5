"""The site is built from the docs and docstrings, strictly and without a network."""

import re

import pytest
import yaml

import isotrain
from tests.processes import ROOT, python

BLOCKED = """
import runpy, socket, sys

def refuse(*_, **__):
    raise OSError("the site is built without a network")

socket.socket.connect = socket.getaddrinfo = refuse
sys.argv = ["mkdocs", "build", "--strict", "--site-dir", sys.argv[1]]
runpy.run_module("mkdocs", run_name="__main__")
"""


def pages_of(nav):
    """The pages below an entry of the navigation."""
    if isinstance(nav, str):
        return [nav]
    return [p for one in (nav.values() if isinstance(nav, dict) else nav) for p in pages_of(one)]


def test_every_page_of_the_docs_is_in_the_navigation_once():
    listed = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    own = [page for page in listed if not page.startswith("reference/")]
    docs = ROOT / "docs"
    assert sorted(own) == sorted(str(f.relative_to(docs)) for f in docs.rglob("*.md"))


@pytest.mark.campaign
def test_it_is_built_strictly_and_has_every_public_name(tmp_path):
    done = python("-c", BLOCKED, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    reference = [page.read_text() for page in tmp_path.glob("site/reference/*/index.html")]
    anchors = {name for page in reference for name in re.findall(r'\bid="([\w.]+)"', page)}
    assert {f"{home}.{name}" for name, home in isotrain._HOMES.items()} <= anchors
    lightning = (tmp_path / "site/lightning/index.html").read_text()
    assert "isotrain.plugins.lightning.IsotropyMonitor" in lightning
    text = "".join(page.read_text() for page in tmp_path.glob("site/**/*.html"))
    assert not re.search(r'<(?:script|link)[^>]*(?:src|href)="https?://', text), (
        "nothing is fetched"
    )
