"""The page of an analysis: whole, without anything from outside, and no text becomes markup."""

import pytest
from matplotlib.figure import Figure

from isotrain.analysis.outputs import MOST_OPEN, write_page
from isotrain.analysis.types import Analysis, Picture, Table
from tests.pages.small_run import HOSTILE
from tests.pages.test_report import Page


def figure():
    drawn = Figure(figsize=(2, 2))
    drawn.subplots().plot([0, 1], [0, 1], label=HOSTILE)
    drawn.axes[0].legend()
    return drawn


class Mine(Analysis):
    name, question = "mine", f"Why {HOSTILE}?"

    def parts(self, subject):
        return []


TABLES = [
    Table("words", "Words", ["word", "n"], [[HOSTILE, 5], ["dog", 7]], ["N = 12."]),
    Table("long", "Long", ["n"], [[k] for k in range(MOST_OPEN + 1)]),
]
RECORD = {
    "overrides": ["analysis=mine"],
    "config": {"seed": 3, "analysis": {"words": [HOSTILE]}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    pictures = [
        Picture("first", "First figure", figure(), "What it shows."),
        Picture("second", "Second figure", figure(), f"More {HOSTILE}."),
    ]
    facts = ["weights: bert", "seed 3"]
    assert write_page(folder, Mine(), facts, TABLES, pictures, RECORD) == folder / "analysis.html"
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "analysis.html").read_text(encoding="utf-8"))


def test_what_a_reader_sees_in_its_order(page):
    wanted = [
        *("Analysis mine", "weights: bert", "Why", "First figure", "What it shows."),
        *("Second figure", "2 rows", "dog", "N = 12.", "All 41 rows"),
        *("isotrain analyze analysis=mine", "seed: 3"),
    ]
    behind = page.text[page.text.index("Analysis mine") :]
    places = [behind.index(text) for text in wanted]
    assert places == sorted(places)


def test_hostile_texts_stay_texts(folder, page):
    assert page.text.count(HOSTILE) >= 4  # question, table, description, configuration
    assert page.handlers == []
    assert "img" not in page.tags
    assert HOSTILE not in (folder / "analysis.html").read_text(encoding="utf-8")
