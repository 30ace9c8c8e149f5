"""`table.md`: its numbers, and what stands above and below its tables."""

import re

from isotrain.results.markdown import aligned, markdown
from isotrain.results.runs import Gap
from tests.results.small_tables import (
    columns,
    one_degenerate,
    result,
    runs,
    text,
)


def test_tables_are_whole_and_no_line_of_text_is_wider_than_120():
    lines = text(one_degenerate(), changes=["margin was 0.005 " * 20]).splitlines()
    assert max(len(line) for line in lines if not line.startswith("|")) <= 120
    blocks = re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.MULTILINE)
    assert len(blocks) == 2 * 2 + 2  # tasks × scores, and without collapsed predictions
    for block in blocks:
        assert len({len(line) for line in block.splitlines()}) == 1
        assert len({len(columns(line)) for line in block.splitlines()}) == 1


def test_markdown_has_the_numbers_of_the_rows():
    found = text(runs())
    lines = [columns(line) for line in found.splitlines() if line.startswith("|")]
    assert lines[0] == [
        *("method", "n", "mean ± 95 % CI", "difference [95 % CI]", "Holm p", "TOST p"),
        "published",
    ]
    assert lines[2] == ["none", "4", "61.3 ± 3.5", "", "", "", "60.0"]
    assert lines[3] == [
        *("protect_labels_1.0", "4", "63.0 ± 3.4", "+1.8 [−1.0, +4.5]", ".133", ".394", "58.0")
    ]
    assert "### accuracy on dev, N = 277" in found
    assert "### IsoScore (1 = isotropic), layer 6, tokens, N = 64" in found
    assert "seeds needed |" not in found  # of four pairs
    message = " ".join(found.split())
    assert "Published: Some & Other 2020, table 3." in message
    assert "a difference beyond the margin, ±2.0 points, by two one-sided t tests" in message


def test_collapsed_predictions_are_listed_marked_and_left_out_in_a_second_table():
    found = text(one_degenerate())
    assert "- rte, none, seeds 0: one class" in found
    of_all, without = found.split("### accuracy on dev, N = 277, without collapsed predictions")
    marked = re.findall(r"^\| (\S+ †) ", of_all, re.MULTILINE)
    assert marked == ["none †", "protect_labels_1.0 †"] * 2
    assert "- none: 1 of 4 runs of method none collapsed (†)" in of_all
    assert "- protect_labels_1.0: 1 of 4 runs of method none collapsed: no claim (†)" in of_all
    assert "TOST p |" not in of_all
    of_rte, of_wic = without.split("## wic")
    assert "TOST p |" in of_rte
    assert "†" not in of_rte
    assert "without collapsed" not in of_wic.split("- Acc")[0]
    assert "ollapsed" not in text(runs()).replace("beside collapsed predictions", "")


def test_what_is_missing_mixed_or_changed_stands_above_the_tables():
    first, *others = runs(code="0a1b")
    gaps, changes = [Gap("wic", "none", 9, "not run")], ["margin was 0.005 at first"]
    found = text([first._replace(code="2c3d+"), *others], gaps=gaps, changes=changes)
    above = found[: found.index("## rte")]
    for wanted in (
        "- wic, none, seed 9: not run",
        "Mixed code",
        "- 2c3d+: rte none 0",
        "- margin was 0.005 at first",
    ):
        assert wanted in above
    assert "Mixed" not in text(runs(code="0a1b"))


def test_why_there_is_no_ci_over_examples_stands_below_the_table():
    wanted = "- protect_labels_1.0: no CI over seeds and examples: 8 of 8 runs kept no predictions"
    assert wanted in text(runs())
    whole = result(runs())
    rows = [
        row._replace(both_low=0.0, both_high=0.2, both_undefined=12, why_no_both="")
        for row in whole.rows
    ]
    shown = markdown(whole._replace(rows=rows))
    assert "12 resamples without a defined score are left out" in shown
    assert "no CI over" not in shown
    assert "[0.0, +20.0]" in shown


def test_a_method_whose_predictions_are_all_collapsed_has_a_row_without_them():
    found = [r._replace(degenerate="x") if r.method != "none" else r for r in runs()]
    part = text(found).split("### accuracy on dev, N = 277, without collapsed predictions")[1]
    line = columns(next(line for line in part.splitlines() if line.startswith("| protect")))
    assert line[:3] == ["protect_labels_1.0", "0", ""]
    assert "- protect_labels_1.0: every run has collapsed predictions and is left out" in part


def test_bars_and_tags_of_a_cell_are_escaped():
    lines = aligned([["a|b", "p < .05"], ["<script>x</script>", "x <!-- y"]])
    assert [line.split(" | ") for line in lines[::2]] == [
        [r"| a\|b                    ", "p < .05     |"],
        ["| &lt;script>x&lt;/script>", "x &lt;!-- y |"],
    ]
