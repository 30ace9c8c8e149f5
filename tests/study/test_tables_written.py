"""Tables as they are written: markdown, CSV, parquet and LaTeX of the same rows."""

from __future__ import annotations

import csv
import io
import re

import pyarrow.parquet as pq
import pytest

from isotrain.study.definition import Study
from isotrain.study.latex import SIGNS, escaped, latex
from isotrain.study.markdown import markdown
from isotrain.study.results import Run
from isotrain.study.table import table_rows
from isotrain.study.tidy import COLUMNS, runs_csv, runs_parquet, table_csv

LAYER, COUNT = "isotropy/isoscore/layer_06/tokens", "isotropy/n_rows/layer_06/tokens"
STUDY = Study(
    name="50%_{odd}",
    overrides=(),
    tasks={"rte": ("task=rte",), "wic": ("task=wic",)},
    arms={"none": ("isotropy=none",), "protect_labels_1.0": ("isotropy=protect_labels",)},
    baseline="none",
    seeds=(0, 1, 2, 3),
    margin=0.02,
    published={"rte": {"none": 0.6, "protect_labels_1.0": 0.58, "theirs": 0.7}},
    published_source="Some & Other 2020, table 3",
)
NONE, ARM = [0.60, 0.64, 0.59, 0.62], [0.61, 0.66, 0.63, 0.62]


def runs(none=NONE, arm=ARM, **made):
    return [
        Run(
            *(task, name, seed, {"val/accuracy": value, "val/loss": 0.5, LAYER: -value, COUNT: 64}),
            *({"val/accuracy": 277, LAYER: 64}, ""),
            sizes={"dev": 277},
            **made,
        )
        for task in STUDY.tasks
        for name, values in (("none", none), ("protect_labels_1.0", arm))
        for seed, value in enumerate(values)
    ]


def tables(found):
    sound = [run for run in found if not run.degenerate]
    own = {"all": table_rows(STUDY, found)}
    return own if sound == found else {**own, "without degenerate": table_rows(STUDY, sound)}


def text(found, study=STUDY, missing=()):
    return markdown(study, tables(found), found, missing, 16, ["threads=1"])


def one_degenerate():
    first, *others = runs()
    return [first._replace(degenerate="one class"), *others]


def parsed(content):
    return list(csv.DictReader(io.StringIO(content)))


def columns(line):
    """The cells of a line of a markdown table."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def test_markdown_is_no_wider_than_120_columns_and_its_tables_are_whole():
    lines = text(one_degenerate()).splitlines()
    assert max(map(len, lines)) <= 120
    blocks = re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.MULTILINE)
    assert len(blocks) == 2 * 2 * 2 + 1 + 2 * 2  # tasks × scores × 2, published, without degenerate
    for block in blocks:
        assert len({len(line) for line in block.splitlines()}) == 1
        assert len({len(columns(line)) for line in block.splitlines()}) == 1


def test_markdown_has_the_numbers_of_the_rows():
    found = runs()
    (row,) = [r for r in tables(found)["all"][:2] if r.comparison]
    shown = [columns(line) for line in text(found).splitlines() if line.startswith("| protect")]
    main, details = shown[:2]
    assert main[:4] == ["protect_labels_1.0", "4", "0.6300", "0.0216"]
    assert main[5:] == ["0.0175", "-0.0097 to 0.0447", f"{row.p_holm:.3f}"]
    p = (f"{row.comparison.p:.3f}", "t", f"{row.comparison.p_equivalent:.3f}")
    assert details == ["protect_labels_1.0", "4", *p, str(row.comparison.n_for_a_point)]


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
    assert "egenerate" not in text(runs())


def test_mixed_code_and_missing_runs_are_told_above_the_tables():
    first, *others = runs(code="0a1b")
    found = text([first._replace(code="2c3d+"), *others], missing=["wic, none, seed 9: not run"])
    above = found[: found.index("## rte")]
    assert "- wic, none, seed 9: not run" in above
    assert "Mixed code" in above
    assert "- 2c3d+: rte none 0" in above
    assert "Mixed" not in text(runs(code="0a1b"))


def test_a_legend_says_what_the_margin_is_only_where_there_is_one():
    assert "±0.02" in text(runs())
    without = Study(**{**vars(STUDY), "margin": None})
    rows = {"all": table_rows(without, runs())}
    assert "equivalent" not in markdown(without, rows, runs(), [], 16, [])


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
    assert lines[1]["n_for_a_point"] == str(row.comparison.n_for_a_point)
    assert [lines[0][key] for key in COLUMNS[11:]] == [""] * (len(COLUMNS) - 11)
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


def tokens(source):
    """Commands, escaped signs, braces, ampersands and the rest, without comments."""
    source = re.sub(r"(?<!\\)%.*", "", source)
    return re.findall(r"\\[A-Za-z]+|\\\\|\\.|[{}&$]|[^\\{}&$]+", source)


@pytest.mark.parametrize("found", [runs(), one_degenerate(), runs([0.5], [0.6])])
def test_latex_is_balanced_and_every_line_has_its_columns(found):
    source = latex(STUDY, tables(found))
    depth, dollars = 0, 0
    for token in tokens(source):
        depth += (token == "{") - (token == "}")
        dollars += token == "$"
        assert depth >= 0
    assert (depth, dollars % 2) == (0, 0)
    opened, closed = (re.findall(rf"\\{end}{{(\w+)}}", source) for end in ("begin", "end"))
    assert sorted(opened) == sorted(closed)
    n_columns = len(re.search(r"\\begin{tabular}{(\w+)}", source)[1])
    lines = [line for line in source.splitlines() if line.endswith(r"\\")]
    assert lines
    for line in lines:
        spanned = re.match(r"\\multicolumn{(\d+)}", line)
        n_ampersands = tokens(line).count("&")
        assert (int(spanned[1]) if spanned else n_ampersands + 1) == n_columns
    for rule in ("toprule", "bottomrule"):
        assert source.count(rf"\{rule}") == opened.count("table")
    assert not set(re.sub(r"^%.*|\\label{.*}", "", source, flags=re.MULTILINE)) & set("−×±<>~^#")


def test_latex_says_what_its_numbers_are():
    source = latex(STUDY, tables(one_degenerate()))
    captions = re.findall(r"\\caption{(.*)}$", source, re.MULTILINE)
    assert len(captions) == 3  # wic is the same without
    assert captions[0].startswith(r"50\%\_\{odd\}, rte: mean")
    assert "n = 4 seeds" in captions[0]
    assert "paired t test" in captions[0]
    assert "without degenerate runs" in captions[1]
    assert "n = 3 to 4 seeds" in captions[1]
    assert r"protect\_labels\_1.0 & 4 & 0.6300 & " in source
    assert r"$-$0.6125" in source
    assert r"published: Some \& Other 2020, table 3" in source
    assert re.findall(r"\\label{(.*)}", source)[0] == "tab:50-_-odd--rte"


@pytest.mark.parametrize("sign", SIGNS)
def test_every_sign_is_escaped_once(sign):
    assert escaped(f"a{sign}b") == f"a{SIGNS[sign]}b"
