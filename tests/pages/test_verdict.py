"""What a page says of a run in sentences: what happened, and what to be careful about."""

from __future__ import annotations

import math

import pytest

from isotrain.pages.verdict import Z, faults, sentences, warnings, wilson
from isotrain.runs.files import read_records, read_result
from tests.pages.small_run import write_run


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"select": "best", "n_candidates": 7}, "the best of 7 evaluations on dev"),
        ({"select": "holdout", "n_candidates": 7}, "7 evaluations on held-out training rows"),
        ({"n_rows": {"dev": 32}}, "Dev has 32 rows"),
        ({"stopped_by_patience": True}, "training.patience"),
        ({"limited_evaluation": {"test": {"scored": 9, "of": 80}}}, "9 of the 80 examples of test"),
    ],
)
def test_warnings(tmp_path, more, wanted):
    folder = write_run(tmp_path / "run", snapshots=False)
    rows, plain = read_records(folder / "metrics.jsonl"), {"n_rows": {"dev": 5000}, "width": 64}
    result = read_result(folder) | plain
    assert not any(wanted in text for text in warnings(result, rows))
    assert any(wanted in text for text in warnings(result | more, rows))


@pytest.mark.parametrize(
    ("gap", "spread", "is_told"),
    [(0.2, 1.1, False), (2.1, 1.0, True), (0.0, 2.1, True), (0.0, 0.4, True), (None, None, False)],
)
def test_a_layer_that_is_frozen_by_other_rows_than_those_of_dev_is_told(gap, spread, is_told):
    own = {} if gap is None else {"val/pooled/queue_gap": gap, "val/pooled/queue_spread": spread}
    rows = [{"step": 0, "val/pooled/queue_gap": 9.0, "val/pooled/queue_spread": 9.0}]
    rows.append({"step": 8, "val/accuracy": 0.5, **own})  # the first evaluation does not count
    found = [text for text in warnings({"steps": 8}, rows) if "The layer at pooled" in text]
    assert len(found) == is_told
    assert not is_told or (f"queue is {gap:g}" in found[0] and "refit" in found[0])
    one = {"steps": 8, "config": {"data": {"batch_size": 1}}}
    told = [text for text in warnings(one, rows) if "about it: data.batch_size=1 fills" in text]
    assert len(told) == is_told, "the size of the batch comes first"


def test_n_of_a_score_is_what_was_evaluated(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False)
    rows = [*read_records(folder / "metrics.jsonl"), {"step": 40, "val/n_rows": 64}]
    low, high = wilson(0.6, 64)
    wanted = f"(N = 64; 95 % Wilson interval of the last value {low:.3f} to {high:.3f})"
    assert wanted in sentences(read_result(folder), rows)[0]
    of_scores = [{**row, "val/spearman": row.get("val/accuracy", 0.5)} for row in rows]
    found = sentences(read_result(folder) | {"monitor": "val/spearman"}, of_scores)[0]
    assert "Wilson" not in found


@pytest.mark.parametrize("n", [1, 32, 640])
def test_the_ends_of_a_wilson_interval_are_the_accuracies_that_lie_z_errors_away(n):
    for k in {0, 1, n // 2, n}:
        low, high = wilson(k / n, n)
        assert 0 <= low <= k / n <= high <= 1
        assert low < high
        for end in (low, high):
            if 0 < end < 1:
                error = math.sqrt(end * (1 - end) / n)
                assert abs(k / n - end) == pytest.approx(Z * error, rel=1e-6)
    assert pytest.approx(1.95996, abs=1e-5) == Z
    assert (wilson(0.0, n)[0], wilson(1.0, n)[1]) == (0.0, 1.0)


def test_few_rows_for_their_width_are_told_with_what_a_gaussian_has(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, sites=("pooled", "tokens"))
    result, rows = read_result(folder), read_records(folder / "metrics.jsonl")

    def told(**more):
        found = [text for text in warnings(result | more, rows) if "few rows" in text]
        return found[0] if found else ""

    small = "N = 640 (first token (CLS), mean of tokens, site pooled, site tokens)"
    assert f"(N < 10·D = 3,840): {small}; N = 2,048 (tokens)." in told()
    assert "about 0.625 at N = 640 and 0.842 at N = 2,048 (D = 384)." in told()
    assert f"(N < 10·D = 1,000): {small}. Some values" in told(width=100)
    assert told(width=64) == ""
    assert f"(N < 1,000): {small}. Some values" in told(width=None)
    assert "Gaussian" not in told(width=None)


def test_faults_are_told_in_one_place(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, isotropy=False)
    rows = read_records(folder / "metrics.jsonl")
    result = read_result(folder) | {"degenerate": True, "degenerate_reason": "one class"}
    assert faults(result) == ["The run is degenerate: one class."]
    assert faults(result, rows, has_checkpoint=True) == faults(result)
    assert not any("degenerate" in text for text in warnings(result, rows))


@pytest.mark.parametrize(
    ("status", "has_checkpoint", "wanted"),
    [
        ("failed", True, "The same command goes on from the last checkpoint."),
        ("interrupted", False, "The same command starts it from the beginning."),
        ("running", True, "If it is no longer at work, the same command goes on from"),
    ],
)
def test_a_run_that_stopped_says_where_and_how_it_goes_on(status, has_checkpoint, wanted):
    rows = [{"step": 0, "val/loss": 0.5}, {"step": 39, "train/loss": 0.5}]
    (text,) = faults({"status": status}, rows, has_checkpoint)
    assert text.startswith(f"The run is not finished ({status}): the last row is of step 39")
    assert wanted in text
    assert "nothing was logged" in faults({"status": status})[0]


def test_how_far_few_rows_let_an_accuracy_be_off():
    rows = [{"step": 0, "val/accuracy": 0.5, "val/spearman": 0.5}]
    known = {"n_rows": {"dev": 500}}

    def told(key):
        return next(t for t in warnings(known | {"monitor": key}, rows) if "Dev has" in t)

    low, high = wilson(0.5, 500)
    assert f"is ±\u00a0{100 * (high - low) / 2:.1f} points" in told("val/accuracy")
    assert "4.4 points" in told("val/accuracy")
    assert "points" not in told("val/spearman")
