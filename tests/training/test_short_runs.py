"""What a run of a few steps, on a part of dev, leaves and prints."""

from __future__ import annotations

import re

import pytest

from isotrain.pages.show import show_run
from isotrain.run import folder_of, run
from isotrain.runs.files import read_records


def finished(cfg):
    """The rows of a run, and its scores."""
    scores = run(cfg, "arm", show=show_run)
    return read_records(folder_of(cfg, "arm") / "metrics.jsonl"), scores


@pytest.mark.parametrize(
    ("steps", "every", "logged"),
    [(3, 10, [2]), (1, 10, [0]), (4, 2, [1, 3]), (0, 10, [])],
)
def test_the_loss_of_a_run_shorter_than_the_interval_is_logged(
    composed, small, tmp_path, steps, every, logged
):
    rows, _ = finished(
        composed(
            *(*small, "task=rte", "metric=[]", f"output_dir={tmp_path}"),
            *("data.batch_size=16", f"trainer.max_steps={steps}"),
            *(f"trainer.log_every_n_steps={every}", "report=false"),
        )
    )
    assert [row["step"] for row in rows if "train/loss" in row] == logged


@pytest.mark.parametrize(("limit", "n"), [("2", 16), ("1.0", 32)])
def test_n_is_the_number_of_rows_that_were_evaluated(composed, small, tmp_path, capsys, limit, n):
    rows, scores = finished(
        composed(
            *(*small, "task=wic", "metric=[]", f"output_dir={tmp_path}", "report=false"),
            *("trainer.max_steps=1", "data.eval_batch_size=8"),
            f"+trainer.limit_val_batches={limit}",
        )
    )
    assert scores["val/n_rows"] == n
    assert {row["val/n_rows"] for row in rows if "val/n_rows" in row} == {n}
    assert scores["test/n_rows"] == 32
    printed = capsys.readouterr().out
    assert re.findall(r"(val|test)/accuracy \(N = (\d+)\)", printed) == [
        ("val", str(n)),
        ("test", "32"),
    ]
