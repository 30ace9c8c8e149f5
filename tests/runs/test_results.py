"""`result.json` as strict JSON, and as what is read back."""

from __future__ import annotations

import json
import math

import pytest

from isotrain.runs.files import read_result, write_json


def test_what_is_not_finite_is_null_and_a_score_reads_as_nan(tmp_path):
    scores = {"val/loss": math.nan, "val/x": math.inf, "val/accuracy": 0.5}
    content = {"status": "finished", "scores": scores, "resumed_after_step": None}
    content["odd"] = [math.nan]
    write_json(tmp_path / "result.json", content)
    stored = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
    assert stored["scores"] == {"val/loss": None, "val/x": None, "val/accuracy": 0.5}
    assert stored["odd"] == [None]
    result = read_result(tmp_path)
    assert math.isnan(result["scores"]["val/loss"])
    assert math.isnan(result["scores"]["val/x"])
    assert result["scores"]["val/accuracy"] == 0.5
    assert result["resumed_after_step"] is None, "a null that is no score stays one"
    assert math.isnan(content["scores"]["val/loss"]), "what is written is not changed"
