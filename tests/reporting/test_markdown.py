"""`table.md`: its width, its numbers, and what stands above and below its tables."""

from __future__ import annotations

import re

from isotrain.reporting.markdown import markdown
from isotrain.reporting.row_bootstrap import RowInterval
from isotrain.reporting.tidy import table_csv
from isotrain.studies.definition import Study
from isotrain.studies.results import Gap
from tests.reporting.small_tables import (
    LONG,
    LONGER,
    NONE,
    STUDY,
    columns,
    findings,
    of_long_names,
    one_degenerate,
    parsed,
    runs,
    tables,
    tex,
    text,
)


def test_markdown_is_no_wider_than_120_columns_and_its_tables_are_whole():
    gaps = [Gap("rte", LONG, 5, "failed (" + "long " * 40 + ")", True)]
    lines = text(of_long_names(), LONGER, gaps, ["margin was 0.005 " * 20]).splitlines()
    assert max(map(len, lines)) <= 120
    assert any(LONG in line and line.startswith("|") for line in lines)
    blocks = re.findall(r"(?:^\|.*\n)+", text(one_degenerate()) + "\n", re.MULTILINE)
    assert len(blocks) == 2 * 2 * 2 + 1 + 2 * 2  # tasks × scores × 2, published, without degenerate
    for block in blocks:
        assert len({len(line) for line in block.splitlines()}) == 1
        assert len({len(columns(line)) for line in block.splitlines()}) == 1


def test_longer_names_are_numbers_with_a_list():
    found = text(of_long_names(), LONGER)
    assert f"- arm {LONG}5, in the tables arm 4: `isotropy=y`" in found
    assert "| arm 4 " in found
    assert f"| {LONG}5" not in found
    assert f"- arm {LONG}:" in found
    assert f"arm 4: {LONG}5." in tex(of_long_names(), LONGER).replace("\\_", "_")


def test_markdown_has_the_numbers_of_the_rows():
    found = runs()
    (row,) = [r for r in tables(found)["all"][:2] if r.comparison]
    shown = [columns(line) for line in text(found).splitlines() if line.startswith("| protect")]
    main, details = shown[:2]
    assert main[:4] == ["protect_labels_1.0", "4", "0.6300", "0.0216"]
    assert main[5:] == ["0.0175", "-0.0097 to 0.0447", f"{row.p_holm:.3f}"]
    p = (f"{row.comparison.p:.3f}", "t", f"{row.comparison.p_equivalent:.3f}")
    assert details == ["protect_labels_1.0", "4", *p]
    assert "p equivalent" in text(found)
    assert "seeds for a point |" not in text(found)  # of four pairs
    told = " ".join(text(found).split())
    assert "From five seeds that sd is off by a factor of 0.6 to 2.9" in told
    assert "It is not corrected for several arms" in told


def test_zero_has_no_minus_sign_and_small_p_no_zero():
    assert "-0.0000" not in text(runs(arm=[v - 1e-9 for v in NONE]))
    shifted = [value + 0.1 + 1e-4 * i for i, value in enumerate(NONE)]
    assert "< 0.001" in text(runs(arm=shifted))
    assert "nan" not in text(runs([0.6], [0.7])).lower()
    assert "None" not in text(runs([0.6], [0.7]))


def test_published_rows_stand_beside_with_their_source():
    found = text(runs())
    part = found[found.index("### Published") : found.index("## wic")]
    lines = [columns(line) for line in part.splitlines() if line.startswith("|")][2:]
    assert lines == [
        ["none", "0.6000", "", "0.6125", "4", ""],
        ["protect_labels_1.0", "0.5800", "-0.0200", "0.6300", "4", "0.0175"],
        ["theirs", "0.7000", "0.1000", "", "", ""],
    ]
    assert "Published: Some & Other 2020, table 3" in part
    assert "Published" not in found[found.index("## wic") :]


def test_degenerate_runs_are_listed_and_their_tables_stand_twice():
    found = text(one_degenerate())
    assert "- rte, none, seed 0: one class" in found
    headings = re.findall("^### (.*)$", found, re.MULTILINE)
    assert headings[2] == "val/accuracy, N = 277, without degenerate runs"
    assert sum("without degenerate" in heading for heading in headings) == 2  # none of wic
    whole, sound = (
        [row for row in parsed(table_csv(STUDY, tables(one_degenerate()))) if row["runs"] == name]
        for name in ("all", "without degenerate")
    )
    assert (whole[0]["n"], sound[0]["n"]) == ("4", "3")
    assert (whole[1]["diff_n"], sound[1]["diff_n"]) == ("4", "3")
    assert "† |" not in text(runs())
    assert "Degenerate" not in text(runs())


def test_what_stands_beside_degenerate_runs_is_marked_and_not_claimed():
    found = text(one_degenerate())
    of_all, without = found.split("### val/accuracy, N = 277, without degenerate runs")
    marked = re.findall(r"^\| (\S+ †) ", of_all, re.MULTILINE)
    assert marked == [name for name in ("none †", *["protect_labels_1.0 †"] * 2)] * 2
    said = "1 of 4 runs of none are degenerate"
    assert f"- none: {said} (†)" in of_all
    assert f"- protect_labels_1.0: {said}: no claim (†)" in of_all
    assert "p equivalent |" not in of_all
    of_rte = without[: without.index("## wic")]
    assert "p equivalent |" in of_rte
    assert "†" not in of_rte


def test_an_arm_whose_runs_are_all_degenerate_has_a_line_without_them():
    found = [r._replace(degenerate="x") if r.arm != "none" else r for r in runs()]
    part = text(found).split("### val/accuracy, N = 277, without degenerate runs")[1]
    cells = columns(next(line for line in part.splitlines() if line.startswith("| protect")))
    assert cells == ["protect_labels_1.0", "0", *[""] * 6]
    assert "- protect_labels_1.0: every run is degenerate, and left out here" in part
    assert "0 to 4 seeds" in tex(found)
    (row,) = (
        row
        for row in parsed(table_csv(STUDY, findings(found).tables))
        if row["n"] == "0" and row["task"] == "rte" and row["score"] == "val/accuracy"
    )
    assert (row["mean"], row["sd"], row["N"]) == ("", "", "277")


def test_mixed_code_and_missing_runs_are_told_above_the_tables():
    first, *others = runs(code="0a1b")
    found = text([first._replace(code="2c3d+"), *others], gaps=[Gap("wic", "none", 9, "not run")])
    above = found[: found.index("## rte")]
    assert "- wic, none, seed 9: not run" in above
    assert "Mixed code" in above
    assert "- 2c3d+: rte none 0" in above
    assert "Mixed" not in text(runs(code="0a1b"))


def test_a_legend_says_what_the_margin_is_only_where_there_is_one():
    assert "±0.02" in text(runs())
    without = Study(**{**vars(STUDY), "margin": None})
    assert "equivalent" not in text(runs(), without)


def test_changes_of_the_study_stand_above_the_tables():
    found = text(runs(), changes=["margin was 0.005 when the first run started"])
    assert "- margin was 0.005 when the first run started" in found[: found.index("## rte")]


def test_why_there_is_no_interval_over_rows_stands_below_the_table():
    assert "- protect_labels_1.0: no interval over rows and seeds: 8 of 8 runs kept no pred" in (
        text(runs())
    )
    found = findings(runs())
    own = [
        line._replace(rows=RowInterval(0.1, 0.0, 0.2, 277, 4, 12), why_no_rows="")
        for line in found.tables["all"]
    ]
    shown = markdown(found._replace(tables={"all": own}), [])
    assert "12 resamples of rows are left out, in which the score is not defined" in shown
    assert "no interval over" not in shown
