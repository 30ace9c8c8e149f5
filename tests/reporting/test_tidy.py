"""CSV and parquet of the same lines."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from isotrain.reporting.tidy import COLUMNS, runs_csv, runs_parquet, table_csv
from tests.reporting.small_tables import (
    ARM,
    LAYER,
    NONE,
    STUDY,
    one_degenerate,
    parsed,
    runs,
    tables,
    text,
)


def test_csv_has_every_digit_and_a_line_for_each_row():
    found = tables(runs())
    content = table_csv(STUDY, found)
    lines = parsed(content)
    assert content.splitlines()[0] == ",".join(COLUMNS)
    assert len(lines) == len(found["all"]) == 8
    row = found["all"][1]
    assert float(lines[1]["diff_low"]) == pytest.approx(row.comparison.difference.low, rel=1e-7)
    assert float(lines[1]["p_holm"]) == pytest.approx(row.p_holm, rel=1e-7)
    assert float(lines[1]["p_equivalent"]) == pytest.approx(row.comparison.p_equivalent, rel=1e-7)
    assert (lines[1]["margin"], lines[1]["method"]) == ("0.02", "t")
    assert (lines[1]["n_for_a_point"], lines[1]["comparisons"]) == ("", "1")  # of four pairs
    assert [lines[0][key] for key in COLUMNS[13:]] == [""] * (len(COLUMNS) - 13)
    assert lines[3]["margin"] == ""  # of isotropy


def test_runs_csv_has_a_line_a_run():
    found = one_degenerate()
    lines = parsed(runs_csv(found, [{"task.form": str(k)} for k in range(16)]))
    assert (len(lines), lines[0]["degenerate"], lines[15]["task.form"]) == (16, "one class", "15")
    assert float(lines[3][LAYER]) == -NONE[3]


def test_parquet_has_a_line_a_run_and_score_with_its_n():
    found = runs(code="0a1b", data="x")
    more = [{"task.form": str(k % 2)} for k in range(16)]
    table = pq.read_table(io.BytesIO(runs_parquet(found, more))).to_pylist()
    assert len(table) == 16 * 4
    lines = {(li["task"], li["arm"], li["seed"], li["key"]): li for li in table}
    line = lines["wic", "protect_labels_1.0", 2, LAYER]
    assert (line["value"], line["n_rows"], line["code"]) == (-ARM[2], 64, "0a1b")
    assert line["task.form"] == "0"  # of run 14
    assert lines["rte", "none", 0, "val/loss"]["n_rows"] == 277


def test_equal_runs_give_equal_bytes():
    shuffled = [run._replace(finished_at="2027") for run in runs()]
    for write in (runs_csv, runs_parquet):
        assert write(runs()) == write(shuffled)
    assert text(runs()) == text(shuffled)
