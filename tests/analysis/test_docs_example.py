"""The analysis of `docs/analyses.md`, measured."""

import re
from pathlib import Path

from tests.analysis.runs import Rows, outcome_of, rows_of

PAGE = Path(__file__).parents[2] / "docs" / "analyses.md"


def test_the_analysis_of_the_page_is_measured_and_drawn(encoder, subject_of):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    made = names["Norms"]()
    texts = ["The dog sees the cat.", "A red bird.", "The old horse likes the garden."]
    splits = dict.fromkeys(("train", "dev", "test"), rows_of(texts))
    subject = subject_of(encoder, Rows(**splits))
    outcome = outcome_of(made, subject)
    (table,) = made.tables(outcome)
    assert table.columns == ["layer", "mean norm"]
    assert [row[0] for row in table.rows] == [0, 1, 2]
    assert all(" ± " in row[1] for row in table.rows)
    (picture,) = made.pictures(outcome)
    (chart,) = picture.specs
    assert [row["x"] for row in chart["data"]["values"]] == [0, 1, 2]
    assert all(row["low"] < row["y"] < row["high"] for row in chart["data"]["values"])
