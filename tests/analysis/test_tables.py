"""The renderer of tables, held to values computed by hand."""

import math
from types import SimpleNamespace

from isotrain.analysis.show import Frames, TableSpec, render

SPEC = TableSpec(
    "scores_{task}",
    "Scores on {task}",
    of="score",
    index={"layer": "layer"},
    values={"a": "first", "share": "share", "absent": "absent", "n": "n"},
    notes=("{n:,} of {analysis.corpus}", lambda frames: [f"{len(frames.records)} records"]),
)


def record(layer, weights="as given", **values):
    return {"kind": "score", "weights": weights, "task": "rte", "layer": layer, **values}


def tables(spec, records):
    return list(render(spec, Frames(records), SimpleNamespace(corpus="snli")))


def test_errors_are_half_widths_of_95_percent_and_intervals_have_a_column():
    records = [
        record(0, a=0.5, a_error=0.01, share=0.25, share_low=0.125, share_high=0.5, n=1200),
        record(1, a=0.75, a_error=None, share=None, share_low=None, share_high=None, n=3),
        record(2, a=None, a_error=0.1, share=1.0, share_low=0.9, share_high=1.0),
        record(10, a=0.25, a_error=math.nan, share=0.5, share_low=None, share_high=1.0, n=4),
        {"kind": "other", "weights": "as given"},
    ]
    (table,) = tables(SPEC, records)
    assert (table.name, table.title) == ("scores_rte", "Scores on rte")
    assert table.columns == ["layer", "first", "share", "share 95 % CI", "n"]
    assert table.rows == [
        [0, "0.500 ± 0.020", 0.25, "0.125 to 0.500", 1200],  # 1.96 × .01 = .0196
        [1, "0.750", None, None, 3],
        [2, None, 1.0, "0.900 to 1.000", None],
        [10, "0.250", 0.5, None, 4],
    ]
    assert type(table.rows[0][-1]) is int
    assert table.notes == ["1,200 of snli", "5 records"]


def test_before_and_after_stand_one_below_the_other_in_the_order_of_the_index():
    records = [record(k, w, a=k, n=1) for w in ("before", "after") for k in (2, 10, 1)]
    (table,) = tables(SPEC, records)
    assert table.columns[:2] == ["layer", "weights"]
    assert [row[:2] for row in table.rows] == [
        [2, "before"], [2, "after"], [10, "before"], [10, "after"], [1, "before"], [1, "after"],
    ]  # fmt: skip


def test_values_side_by_side_and_a_table_for_each():
    records = [
        record(layer, split=split, task=task, a=layer + 1, a_error=1.0, n=7)
        for task in ("rte", "wic")
        for layer in (0, 1)
        for split in ("dev", "test")
        if (task, layer, split) != ("rte", 1, "dev")
    ]
    spec = TableSpec(
        "of_{task}", "t", of="score", index={"task": "task", "layer": "l"}, across="split",
        values={"a": "", "n": "n"}, each="task", form="+.1f",
    )  # fmt: skip
    rte, wic = tables(spec, records)
    assert rte.columns == ["task", "l", "dev", "dev n", "test", "test n"]
    assert rte.rows == [["rte", 0, "+1.0 ± 2.0", 7, "+1.0 ± 2.0", 7], ["rte", 1, None, None, "+2.0 ± 2.0", 7]]  # fmt: skip  # noqa: E501
    assert wic.name == "of_wic"
    assert wic.rows[1] == ["wic", 1, "+2.0 ± 2.0", 7, "+2.0 ± 2.0", 7]


def test_rows_may_be_made_of_several_kinds():
    def joined(frames):
        return frames.of("score").merge(frames.of("size"), on=["task", "weights"])

    records = [record(0, a=1), {"kind": "size", "weights": "as given", "task": "rte", "n": 9}]
    spec = TableSpec("t", "t", of=joined, index={"task": "task"}, values={"a": "a", "n": "n"})
    (table,) = tables(spec, records)
    assert table.rows == [["rte", 1, 9]]


def test_nothing_measured_gives_no_table():
    assert tables(SPEC, []) == []
