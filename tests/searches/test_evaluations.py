"""What a run has logged, while it is being written."""

from __future__ import annotations

import json
import math

from isotrain.studies.search_run import evaluations

KEY = "val/accuracy"


def write(file, rows, tail=""):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)


def test_evaluations_in_training_are_numbered_not_their_steps(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert evaluations(file, KEY) == []
    write(
        file,
        [
            {"step": 0, KEY: 0.9},  # before training: says nothing of the values
            {"step": 10, "train/loss": 0.1},
            {"step": 17, KEY: 0.5},
            {"step": 34, KEY: None, "val/loss": 1.0},
            {"step": 51, KEY: 0.7},
        ],
        tail='{"step": 68, "val/accu',
    )
    first, second, third = evaluations(file, KEY)
    assert (first, third) == (0.5, 0.7)
    assert math.isnan(second)
    assert evaluations(file, "val/acc") == []


def test_a_step_that_is_evaluated_again_counts_once(tmp_path):
    file = tmp_path / "metrics.jsonl"
    write(file, [{"step": s, KEY: v} for s, v in ((5, 0.1), (10, 0.2), (10, 0.3), (5, 0.4))])
    assert evaluations(file, KEY) == [0.1, 0.2]
