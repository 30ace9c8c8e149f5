"""The page of an analysis: its text, nothing from outside, and no text becomes markup."""

import pytest

from isotrain.analysis.charts import Picture, scatter
from isotrain.analysis.outputs import MOST_OPEN, write_page
from isotrain.analysis.show import Table
from tests.analysis.toy import Toy
from tests.pages.small_run import HOSTILE
from tests.pages.test_report import page_of
from tests.stored_texts import same_text


class Mine(Toy):
    question = f"Why {HOSTILE}?"


TABLES = [
    Table("words", "Words", ["word", "n"], [[HOSTILE, 5], ["dog", None]], ["N = 12."]),
    Table("long", "Long", ["n"], [[k] for k in range(MOST_OPEN + 1)]),
]
RECORD = {
    "overrides": ["analysis=mine", "analysis.words=[a,b c]"],
    "config": {"seed": 3, "analysis": {"words": [HOSTILE]}},
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    colour = {"field": "token", "type": "nominal"}
    chart = scatter([[0, 1]], HOSTILE, HOSTILE, [HOSTILE], colour)
    pictures = [
        Picture("first", "First picture", [chart], "What it shows."),
        Picture("second", "Second picture", [chart, chart], f"More {HOSTILE}."),
    ]
    facts = ["weights: bert", "seed 3"]
    path = write_page(folder, Mine(), facts, TABLES, pictures, RECORD)
    assert path == folder / "analysis.html"
    return page_of(path)


def test_what_a_reader_reads(page):
    same_text("analysis.txt", page.text)
    assert list(page.charts) == ["first", "second", "second_1"]


def test_hostile_texts_stay_texts(page):
    assert page.text.count(HOSTILE) >= 4  # question, table, description, configuration
    assert page.handlers == []
    assert "img" not in page.tags
    assert len(page.scripts) == 3
    assert [a for a in page.addresses if not a.startswith(("#", "data:"))] == []
