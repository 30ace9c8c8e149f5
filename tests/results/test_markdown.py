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
from tests.stored_texts import same_text


def test_tables_are_whole_and_no_line_of_text_is_wider_than_120():
    lines = text(one_degenerate(), changes=["margin was 0.005 " * 20]).splitlines()
    assert max(len(line) for line in lines if not line.startswith("|")) <= 120
    blocks = re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.MULTILINE)
    assert len(blocks) == 2 * 2 + 2  # tasks × scores, and without collapsed predictions
    for block in blocks:
        assert len({len(line) for line in block.splitlines()}) == 1
        assert len({len(columns(line)) for line in block.splitlines()}) == 1


def test_what_a_table_says():
    first, *others = runs(code="0a1b")
    mixed = {"gaps": [Gap("wic", "none", 9, "not run")], "changes": ["margin was 0.005 at first"]}
    whole = result(runs())
    both = {"both_low": 0.0, "both_high": 0.2, "both_undefined": 12, "why_no_both": ""}
    broken = [r._replace(degenerate="x") if r.method != "none" else r for r in runs()]
    chosen = [run._replace(select="best", n_candidates=7) for run in runs()]
    cases = {
        "whole": text(runs()),
        "one run is collapsed": text(one_degenerate()),
        "every run of a method is collapsed": text(broken),
        "missing, mixed and changed": text([first._replace(code="2c3d+"), *others], **mixed),
        "examples": markdown(whole._replace(rows=[row._replace(**both) for row in whole.rows])),
        "best of several": text(chosen),
        "best of several, of one method": text([*runs()[:4], *chosen[4:]]),
    }
    same_text("tables.txt", "".join(f"# # {title}\n{found}\n" for title, found in cases.items()))


def test_bars_and_tags_of_a_cell_are_escaped():
    lines = aligned([["a|b", "p < .05"], ["<script>x</script>", "x <!-- y"]])
    assert [line.split(" | ") for line in lines[::2]] == [
        [r"| a\|b                    ", "p < .05     |"],
        ["| &lt;script>x&lt;/script>", "x &lt;!-- y |"],
    ]
