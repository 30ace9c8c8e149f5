"""Keys of isotropy values: what is written is what is read, and who gets which of them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.runs.keys import (
    COUNTS,
    DEV,
    SIDES,
    TRAINING,
    VIEWS,
    CurveKey,
    few,
    is_aside,
    layer_name,
    metric_of,
    parse_key,
    table,
)

light = settings(max_examples=60)

METRICS = ("isoscore", "isoscore_corrected", "lid_value", "partition", "mine_2")
words = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
layers = st.builds(
    lambda metric, number, view, rows: CurveKey(metric, layer_name(number), view, rows),
    st.sampled_from(METRICS) | words,
    st.integers(0, 99),
    st.sampled_from(VIEWS),
    st.sampled_from([DEV, TRAINING]),
)
sites = st.builds(
    CurveKey,
    st.sampled_from(METRICS) | words,
    st.sampled_from(["pooled", "tokens", "layer_1", "layer_12"]),
    st.sampled_from(SIDES),
    st.sampled_from([DEV, TRAINING]),
)
curves = layers | sites
others = st.sampled_from(["val/loss", "train/pooled/rows_borrowed", "step", "lr-AdamW", "isotropy"])
values = st.floats(-1e6, 1e6)


@given(curves)
@light
def test_a_key_names_its_place_and_nothing_else(curve):
    assert parse_key(curve.text) == curve
    assert curve.text.startswith(("isotropy/", "train_isotropy/"))
    assert parse_key(f"{curve.text}/more") is None
    assert parse_key(curve.text.rpartition("/")[0]) is None
    assert parse_key(f"val_{curve.text}") is None


@given(
    st.dictionaries(curves, values, max_size=12),
    st.dictionaries(others, values),
    st.lists(st.sampled_from(METRICS)),
)
@light
def test_few_keeps_other_keys_and_the_headline_at_its_places(at, rest, headline):
    row = {curve.text: value for curve, value in at.items()} | rest
    last = max((p.where for p in at if p.view in VIEWS), default=None)
    seen = {curve.view for curve in at}
    through = "tokens" if "tokens" in seen else "cls" if "cls" in seen else "mean"
    expected = rest | {
        curve.text: value
        for curve, value in at.items()
        if curve.metric in headline and (curve.view in (*SIDES, through) or curve.where == last)
    }
    assert few(row, headline) == expected
    assert few(row, []) == rest


@pytest.mark.parametrize(
    ("value", "names", "expected"),
    [
        ("lid_value", ["lid"], "lid"),
        ("lid", ["lid"], "lid"),
        ("lids", ["lid"], None),
        ("lid", ["lid_value"], None),
        ("isoscore", [], None),
        ("partition_null_low", ["partition", "partition_null"], "partition_null"),
        ("partition_null_low", ["partition_null", "partition"], "partition_null"),
        ("partition_low", ["partition", "partition_null"], "partition"),
    ],
)
def test_a_value_is_of_the_metric_with_the_longest_name_that_it_begins_with(value, names, expected):
    assert metric_of(value, names) == expected


# --- the table -----------------------------------------------------------------------------------

plain = st.sampled_from(["isoscore", "lid_value", "partition"])
rows = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.dictionaries(
            st.builds(
                CurveKey,
                plain | st.sampled_from([*COUNTS, "partition_null_low", "partition_null_high"]),
                st.sampled_from(["layer_00", "layer_01", "pooled"]),
                st.sampled_from(["cls", "after"]),
                st.sampled_from([DEV, TRAINING]),
            ),
            st.integers(-50, 50).map(float),
        ),
    ),
    max_size=6,
)


@given(rows)
@light
def test_the_table_has_a_line_for_each_value_that_was_measured(steps):
    """Against a plain dictionary: the last value of a step counts, and asides are columns."""
    logged = [
        {"step": step, "val/loss": 1.0} | {curve.text: value for curve, value in found.items()}
        for step, found in steps
    ]
    last = {(step, curve): value for step, found in steps for curve, value in found.items()}
    lines = table(logged)
    assert [line[:5] for line in lines] == sorted(line[:5] for line in lines)
    left = dict(last)
    for line in lines:
        of = {"dev": DEV, "train": TRAINING}[line.rows]
        curve = CurveKey(line.metric, line.layer, line.view, of)
        assert line.value == left.pop((line.step, curve))
        assert line.n_rows == last.get((line.step, curve._replace(metric="n_rows")), 0)
        for found, bound in ((line.null_low, "low"), (line.null_high, "high")):
            null = curve._replace(metric=f"{line.metric}_null_{bound}")
            expected = last.get((line.step, null), math.nan)
            assert found == expected or (math.isnan(found) and math.isnan(expected))
    assert all(is_aside(curve.metric) for _, curve in left)
