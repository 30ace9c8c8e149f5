"""Files of an analysis: what is written can be read back, in full in CSV, in short in Markdown."""

import csv
import io
import math

import pytest

from isotrain.analysis.outputs import MOST_PRINTED, write_outputs
from isotrain.analysis.published import Published, beside, published_table
from isotrain.analysis.show import text
from isotrain.analysis.types import Outcome, Table
from tests.analysis.toy import Toy

RECORDS = [
    {"weights": "before", "layer": 0, "value": 1 / 3, "word": 'a, "b"\nc'},
    {"weights": "after", "layer": 0, "value": math.nan, "n": 10**12, "word": "|"},
    {"weights": "after", "layer": 1, "value": 1.5e-17, "word": None},
    {"weights": "after", "layer": 2, "value": -math.inf, "n": 2},
]
TABLE = Table("words", "Words", ("word", "value"), [], ["N = 3."])
RECORD = {
    "encoder": "bert",
    "weights": "bert at abc",
    "data": "rte of a test",
    "environment": {"isotrain": "1.2", "git": "0a1b"},
    "config": {"seed": 3, "from_run": None},
    "overrides": ["analysis=mine", "analysis.words=[a,b c]"],
}


def test_records_come_back_from_csv_in_full(tmp_path):
    write_outputs(tmp_path, Mine(), Outcome(RECORDS, {}), [], RECORD)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "records.csv").read_text())))
    assert list(rows[0]) == ["weights", "layer", "value", "word", "n"]
    for row, record in zip(rows, RECORDS, strict=True):
        for key, cell in row.items():
            value = record.get(key)
            if value is None or (key == "value" and not math.isfinite(value)):
                assert cell == ""
            else:
                assert type(value)(cell) == value


@pytest.mark.parametrize(
    ("cell", "shown"),
    [(0.0, "0"), (-1e-9, "−1.000·10⁻⁹"), (0.74, "0.7400"), (999.96, "1,000"),
     (123456.7, "123,457"), (True, "True"), (math.inf, "–"), (math.nan, "–"), ("", ""), (7, "7")],
)  # fmt: skip
def test_cells_to_read(cell, shown):
    assert text(cell) == shown


def compared():
    figures = [
        Published("bert", {"set": "stsb"}, "spearman", 54.0, 0.1, "a paper"),
        Published("gpt", {"set": "stsb"}, "spearman", 10.0, None, "another"),
        Published("gpt", {"set": "none"}, "spearman", 11.0, None, "another"),
    ]
    return beside(figures, [{"weights": "as given", "set": "stsb", "spearman": 54.1}], "bert")


def test_published_figures_in_a_table():
    table = published_table(compared(), "bert")
    assert table.rows == [
        ["spearman (set stsb)", "54", "[1]", 54.1, "0.1", "agrees"],
        ["spearman (set stsb)", "10", "[2]", 54.1, None, None],
        ["spearman (set none)", "11", "[2]", None, None, None],
    ]
    assert table.notes[:2] == ("[1] bert, a paper", "[2] gpt, another")


class Mine(Toy):
    def __init__(self, n_rows=2):
        self.n_rows = n_rows

    def tables(self, outcome):
        yield TABLE._replace(rows=[["x", float(k)] for k in range(self.n_rows)])


def test_every_file_is_written_and_tables_are_printed(tmp_path, capsys):
    write_outputs(tmp_path, Mine(), Outcome(RECORDS, {}), compared(), RECORD)
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()} == {
        "records.csv",
        "words.csv",
        "published.csv",
        "analysis.html",
    }
    assert (tmp_path / "words.csv").read_text() == "word,value\nx,0.0\nx,1.0\n"
    printed = capsys.readouterr().out
    for wanted in ("| x    | 1     |", "N = 3.", "agrees", str(tmp_path / "analysis.html")):
        assert wanted in printed
    page = (tmp_path / "analysis.html").read_text()
    for wanted in ("weights: bert at abc", "data: rte of a test", "seed 3", "isotrain 1.2 0a1b"):
        assert wanted in page


def test_a_long_table_is_printed_in_part(tmp_path, capsys):
    write_outputs(tmp_path, Mine(MOST_PRINTED + 5), Outcome([], {}), [], RECORD)
    assert not (tmp_path / "published.csv").exists()  # there are no published figures
    printed = capsys.readouterr().out
    assert printed.count("| x ") == MOST_PRINTED
    assert "... 5 more rows in words.csv" in printed
    assert (tmp_path / "words.csv").read_text().count("x,") == MOST_PRINTED + 5
