"""`table.tex`: that LaTeX can read it, its width, and what it says of its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib.ft2font import FT2Font

from isotrain.reporting.cells import p_text
from isotrain.reporting.latex import SIGNS, escaped, latex
from isotrain.reporting.row_bootstrap import RowInterval
from isotrain.studies.definition import Study
from tests.reporting.small_tables import (
    LONG,
    STUDY,
    findings,
    lost,
    of_long_names,
    one_degenerate,
    runs,
    tex,
)


def tokens(source):
    """Commands, escaped signs, braces, ampersands and the rest, without comments."""
    source = re.sub(r"(?<!\\)%.*", "", source)
    return re.findall(r"\\[A-Za-z]+|\\\\|\\.|[{}&$]|[^\\{}&$]+", source)


@pytest.mark.parametrize("found", [runs(), one_degenerate(), runs([0.5], [0.6])])
def test_latex_is_balanced_and_every_line_has_its_columns(found):
    source = tex(found)
    depth, dollars = 0, 0
    for token in tokens(source):
        depth += (token == "{") - (token == "}")
        dollars += token == "$"
        assert depth >= 0
    assert (depth, dollars % 2) == (0, 0)
    opened, closed = (re.findall(rf"\\{end}{{(\w+)}}", source) for end in ("begin", "end"))
    assert sorted(opened) == sorted(closed)
    parts = re.findall(r"\\begin{tabular}{(\w+)}((?:.|\n)*?)\\end{tabular}", source)
    assert len(parts) == 2 * opened.count("table")  # scores, and more of their differences
    for columns, body in parts:
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) > 2
        for line in lines:
            spanned = re.match(r"\\multicolumn{(\d+)}", line)
            n_ampersands = tokens(line).count("&")
            assert (int(spanned[1]) if spanned else n_ampersands + 1) == len(columns)
    for rule in ("toprule", "bottomrule"):
        assert source.count(rf"\{rule}") == len(parts)
    assert not set(re.sub(r"^%.*|\\label{.*}", "", source, flags=re.MULTILINE)) & set("−×±†<>~^#")


def test_latex_says_what_its_numbers_are():
    source = tex(one_degenerate())
    captions = re.findall(r"\\caption{(.*)}$", source, re.MULTILINE)
    assert len(captions) == 3  # wic is the same without
    assert captions[0].startswith(r"50\%\_\{odd\}, rte: mean")
    assert "n = 4 seeds" in captions[0]
    assert "paired t test" in captions[0]
    assert "without degenerate runs" in captions[1]
    assert "n = 3 to 4 seeds" in captions[1]
    assert (
        r"protect\_labels\_1.0 $\dagger$ & 4 & 0.6300 $\pm$ 0.0216 & 0.0175 $\pm$ 0.0272 & "
        in source
    )
    assert r"$-$0.6125" in source
    (below,) = re.findall(r"^\\par.*Published.*$", source, re.MULTILINE)
    assert r"\parbox{\linewidth}{\footnotesize" in below
    assert r"Published: Some \& Other 2020, table 3." in below
    assert r"theirs &  & 0.7000 & 0.1000 & " in source
    assert re.findall(r"\\label{(.*)}", source)[0] == "tab:50-_-odd--rte"


@pytest.mark.parametrize("sign", SIGNS)
def test_every_sign_is_escaped_once(sign):
    assert escaped(f"a{sign}b") == f"a{SIGNS[sign]}b"


def drawn_pt(tex_text, size=9):
    """How wide a text is in Computer Modern, by the font's own widths, in points."""
    font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts/ttf/cmr10.ttf"))
    font.set_size(size, 72)
    wide = re.sub(
        r"\$-\$|\$<\$|\$\\pm\$|\$\\dagger\$", "m", tex_text
    )  # 8.3 pt at 10 pt, the signs 7.8
    font.set_text(wide.replace(r"\_", "0"))
    return font.get_width_height()[0] / 64


def test_latex_is_no_wider_than_the_text_at_10_pt():
    found, longest = of_long_names(), "eighteen_letters_x"
    for arm, short in ((LONG, longest), (f"{LONG}5", "y")):
        found = [run._replace(arm=short) if run.arm == arm else run for run in found]
    arms = {**STUDY.arms, longest: (), "y": ()}
    found = [run._replace(select="best", n_evaluations=12) for run in found]
    source = tex(found, Study(**{**vars(STUDY), "arms": arms}))
    widths, columns, tables = [], {}, []
    for line in source.splitlines():
        if line.startswith(r"\begin{tabular}"):
            tables.append(columns := {})
        elif line.startswith(r"\multicolumn"):
            widths.append(drawn_pt(re.search(r"\\emph{(.*)}}", line)[1]))
        elif line.endswith(r"\\"):
            for k, cell in enumerate(line.removesuffix(r"\\").split(" & ")):
                columns[k] = max(columns.get(k, 0), drawn_pt(cell.strip()))
    assert {len(columns) for columns in tables} == {5, 3, 4}  # scores, and more of differences
    wholes = [sum(columns.values()) + 2 * 4 * len(columns) for columns in tables]
    assert max(*widths, *wholes) < 345  # \textwidth of article at 10 pt
    assert max(wholes) > 200  # it was measured


def test_latex_has_pairs_p_equivalence_and_rows_of_the_differences():
    found = findings(runs())
    own = [
        line._replace(rows=RowInterval(0.0175, -0.0211, 0.0561, 277, 4))
        if line.comparison
        else line
        for line in found.tables["all"]
    ]
    source = latex(found._replace(tables={"all": own}))
    line = next(line for line in own if line.comparison)
    p, same = (p_text(p) for p in (line.comparison.p, line.comparison.p_equivalent))
    assert r"arm & pairs & p & p equivalent & over rows and seeds \\" in source
    assert rf"protect\_labels\_1.0 & 4 & {p} & {same} & $-$0.0211 to 0.0561 \\" in source
    assert (
        r"p equivalent: of a difference beyond $\pm$0.02, by two one-sided t tests, not" in source
    )
    assert "N: the rows that a score is computed on" in source
    assert "dagger" not in source


def test_latex_claims_nothing_of_degenerate_runs():
    of_rte = tex(one_degenerate()).split(r"\end{table}")[0]
    assert r"none $\dagger$ & 4" in of_rte
    assert "p equivalent" not in of_rte
    assert r"protect\_labels\_1.0: 1 of 4 runs of none are degenerate: no claim" in of_rte
    assert r"$\dagger$: runs behind it are degenerate, nothing is claimed." in of_rte


def test_latex_has_what_to_know_below_each_task():
    first, *others = runs(code="0a1b")
    found = [first._replace(code="2c3d+", degenerate="one class"), *others]
    source = tex(found, gaps=lost(), changes=["margin was 0.005 and is 0.02"])
    of_rte, _, of_wic = re.findall(r"\\begin{table}(?:.|\n)*?\\end{table}", source)
    for wanted in (
        r"Failed, so that the numbers are of the other seeds: rte, protect\_labels\_1.0: 2 of 4",
        "Not finished: rte, none: 1 of 4 seeds not run",
        "Mixed code",
        "Degenerate runs: rte, none, seed 0: one class",
        "margin was 0.005 and is 0.02",
        "2 of 8 runs failed",
    ):
        assert wanted in of_rte
    assert "Failed" not in of_wic
    assert "Not finished: wic, none: 1 of 4 seeds not run" in of_wic
    assert "Mixed" not in of_wic
    assert "margin was 0.005" in of_wic
