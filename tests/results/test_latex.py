"""`table.tex`: that LaTeX can read it, and what it says of its numbers."""

import re
import shutil
import subprocess

import pytest

from isotrain.results.latex import latex
from tests.results.small_tables import STUDY, lost, one_degenerate, result, runs, tex
from tests.stored_texts import same_text

DOCUMENT = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}%s\end{document}"


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
    assert len(parts) == 2 * opened.count("table")  # scores, and isotropy
    for columns, body in parts:
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) > 2
        for line in lines:
            spanned = re.match(r"\\multicolumn{(\d+)}", line)
            n_ampersands = tokens(line).count("&")
            assert (int(spanned[1]) if spanned else n_ampersands + 1) == len(columns)
    text = re.sub(
        r"\$[<>]\$|\\width>", "", re.sub(r"^%.*|\\label{.*}", "", source, flags=re.MULTILINE)
    )
    assert not set(text) & set("−×±†<>~^#·")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("name", ["mean", "long_names_" * 5])
def test_latex_compiles_no_wider_than_the_text(tmp_path, name):
    found = [
        run._replace(
            select="best", n_candidates=12, method="none" if run.method == "none" else name
        )
        for run in one_degenerate()
    ]
    study = STUDY.model_copy(update=dict(methods={"none": (), name: ()}))
    (tmp_path / "t.tex").write_text(DOCUMENT % tex(found, study, lost()), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-draftmode", "t.tex"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "Overfull" not in said
    assert "Missing character" not in said


def test_latex_says_what_its_numbers_are():
    chosen = [run._replace(select="best", n_candidates=7) for run in runs()]
    same_text("tables_latex.txt", tex(one_degenerate()) + tex(chosen))


def test_a_task_of_which_no_run_has_a_score_has_no_table():
    """Only its chance level is known."""
    whole = result(runs())
    rows = [row._replace(baseline="" if row.task == "wic" else row.baseline) for row in whole.rows]
    assert latex(whole).count(r"\begin{table}") == 2
    assert latex(whole._replace(rows=rows)).count(r"\begin{table}") == 1
