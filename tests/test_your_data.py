"""docs/your-data.md: its five commands run on a CSV of 300 rows, and print what it shows."""

import csv
import re
import shlex

import pytest

from isotrain import cli
from tests.docs_pages import ROOT, fences

PAGE = ROOT / "docs" / "your-data.md"
WORDS = {"good": ("lovely", "fresh", "clever"), "bad": ("dull", "stale", "clumsy")}
THINGS = ("plot", "cast", "score", "ending")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def masked(text):
    """A line without its numbers, hashes, spaces and rules of a table."""
    text = re.sub(r"-[0-9a-f]{8,10}\b|sha256 [0-9a-f]+", "", text)
    return re.sub(r"[\d.,±%\[\]\s−+|-]+", " ", text).strip()


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """`reviews.csv` as the page begins it, in the folder of the test."""
    (start,) = fences(PAGE, "csv")
    rows = list(csv.reader(start.splitlines()))
    for i in range(len(rows) - 1, 300):
        verdict = ("good", "bad")[i % 2]
        text = f"The {THINGS[i % 4]} is {WORDS[verdict][i % 3]}, and so is number {i}."
        rows.append([i, text, verdict])
    with (tmp_path / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_five_commands_print_what_the_page_shows(reviews, capsys):
    page = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    pairs = re.findall(
        r"^```\nisotrain ([^\n]*)\n```\n\n```text\n(.*?)^```", page, re.M | re.DOTALL
    )
    assert len(pairs) == 5
    for command, shown in pairs:
        made = [str(f.relative_to(reviews)) for f in reviews.glob("runs/reviews/none-*")]
        words = shlex.split(re.sub(r"runs/reviews/none-0123456789", "".join(made[:1]), command))
        if words[0] == "train":
            words = [word for word in words if word != "encoder=minilm"]
            words += ["encoder=tiny", "encoder.width=16", "trainer.accelerator=cpu", "threads=1"]
        assert cli.main(words) == 0, command
        printed = list(map(masked, capsys.readouterr().out.splitlines()))
        for line in shown.splitlines():
            assert masked(line) in printed, (line, printed)
    assert list(reviews.glob("runs/reviews/none-*/report.html"))
