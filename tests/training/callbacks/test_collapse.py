"""Collapsed runs: what is logged of predictions, and from where on a run is degenerate."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records
from isotrain.tasks.classification import Classification
from isotrain.tasks.regression import Regression
from isotrain.training.callbacks.collapse import (
    CollapseMonitor,
    degenerate,
    majority_share,
    spread,
)

numbers = st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=40)


@settings(max_examples=40)
@given(st.data(), st.sampled_from([torch.float32, torch.float64]))
def test_the_spread_is_that_of_numpy(data, dtype):
    p = data.draw(numbers)
    y = data.draw(st.lists(st.floats(0, 1, width=32), min_size=len(p), max_size=len(p)))
    found = float(spread(*(torch.tensor(values, dtype=dtype) for values in (p, y))))
    assume(np.std(y) > 1e-4)
    assert found == pytest.approx(np.std(p) / np.std(y), rel=1e-6, abs=1e-9)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_the_majority_share_is_that_of_a_loop(predicted):
    share = float(majority_share(torch.tensor(predicted)))
    assert share == max(predicted.count(c) for c in range(4)) / len(predicted)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"val/predicted_majority_share": 0.989}, ""),
        ({"val/predicted_majority_share": float(np.float32(0.99))}, "99 % of the predictions"),
        ({"val/predicted_majority_share": 0.9951}, "99.51 % of the predictions"),
        ({"val/accuracy": 0.4, "val/predicted_majority_share": 0.5}, ""),  # poor, and not collapsed
        ({"val/spread": 0.0101}, ""),
        ({"val/spread": 0.0099}, "deviation is 0.99 % of that of the gold scores"),
        ({"val/spread": 0.5, "val/accuracy": math.nan}, "val/accuracy is not a number"),
        ({"val/spread": 0.0, "val/accuracy": math.nan}, "deviation is 0 % of"),
        ({"val/spread": math.nan, "val/accuracy": math.nan}, "val/accuracy is not a number"),
        ({"val/accuracy": math.nan}, ""),  # all labels are equal
        ({}, ""),  # nothing was evaluated
    ],
)
def test_the_rule(scores, said):
    reason = degenerate(scores, "val/accuracy")
    assert said in reason
    assert bool(reason) == bool(said)


def result_of(cfg):
    run(cfg, show=show_run)
    folder = folder_of(cfg)
    return json.loads((folder / "result.json").read_text()), read_records(folder / "metrics.jsonl")


@pytest.fixture
def base(small, tmp_path):
    return (*small, "metric=[]", "trainer.max_steps=1", f"output_dir={tmp_path}")


@pytest.mark.parametrize(("n_other", "is_degenerate"), [(0, True), (1, False)])
def test_a_run_of_one_class_says_so(composed, base, monkeypatch, capsys, n_other, is_degenerate):
    """32 rows of dev, in four batches: all of class 1, or one of them of class 0."""
    before = Classification.predictions
    left = [0]

    def predictions(self, logits):
        found = torch.ones_like(before(self, logits))
        if left[0]:
            found[0], left[0] = 0, left[0] - 1
        return found

    monkeypatch.setattr(Classification, "predictions", predictions)
    start = CollapseMonitor.on_validation_start

    def refill(self, *arguments):
        left[0] = n_other
        start(self, *arguments)

    monkeypatch.setattr(CollapseMonitor, "on_validation_start", refill)
    result, rows = result_of(composed(*base, "task=rte"))
    assert result["degenerate"] == is_degenerate
    shares = [
        row["val/predicted_majority_share"] for row in rows if "val/predicted_majority_share" in row
    ]
    assert len(shares) == 2
    assert shares == pytest.approx([(32 - n_other) / 32] * 2)
    message = "degenerate: 100 % of the predictions on dev are one class"
    assert (message in capsys.readouterr().out) == is_degenerate
    assert result["degenerate_reason"] == ("" if not is_degenerate else message.partition(": ")[2])


def test_a_correlation_that_is_not_defined_is_degenerate(composed, base, monkeypatch):
    monkeypatch.setattr(Regression, "predictions", lambda self, logits: 0 * logits[:, 0])
    result, _ = result_of(composed(*base, "task=stsb"))
    assert result["degenerate"]
    assert result["scores"]["val/spearman"] is None


def test_scores_below_minus_one_are_predictions_too(composed, base, monkeypatch):
    monkeypatch.setattr(
        Regression, "predictions", lambda self, x_BC: 4e3 * (x_BC[:, 0] - x_BC.mean())
    )
    result, _ = result_of(composed(*base, "task=stsb"))
    assert not result["degenerate"]
    assert result["scores"]["val/spread"] > 0


@pytest.mark.parametrize(("name", "label"), [("stsb", "score"), ("rte", "label")])
def test_predictions_are_not_collapsed_where_all_labels_are_equal(
    composed, base, write_fixture_data, tmp_path, name, label
):
    file = write_fixture_data(tmp_path / "data") / name / "dev.jsonl"
    rows = [json.loads(line) | {label: 1} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result, _ = result_of(composed(*base, f"task={name}", f"source.root={tmp_path / 'data'}"))
    assert (result["degenerate"], result["degenerate_reason"]) == (False, "")
    assert not {"val/spread", "val/predicted_majority_share"} & result["scores"].keys()
