"""Selecting weights in two processes: as in one. After a stop: tests/training/test_processes.py."""

import json

import pytest
import torch

from benchmarks.kill_points import untimed
from isotrain.runs.files import read_records
from tests.processes import train_on_ranks
from tests.training.test_processes import SGD

KEYS = (
    *("task=stsb", "task.head_dropout=0", "task.form=bi", "threads=1", "encoder.dropout=0"),
    *("data.batch_size=15", "data.eval_batch_size=11", "isotropy=mean", "metric=[isoscore]"),
    *("trainer.max_epochs=4", "trainer.val_check_interval=2", "checkpoint.every_steps=2"),
    *("training.select=holdout", "training.patience=5", "data.holdout=0.3"),
    *("trainer.precision=64-true", *SGD),
)


@pytest.mark.slow
def test_two_processes_select_what_one_does(small, tmp_path):
    found = {}
    for n in (1, 2):
        folder, _ = train_on_ranks(n, tmp_path / str(n), *small, *KEYS)
        result = json.loads((folder / "result.json").read_text())
        state = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
        found[n] = result, read_records(folder / "metrics.jsonl"), state
    (one, rows1, state1), (two, rows2, state2) = found[1], found[2]
    assert one["n_rows"]["holdout"] % 2, "an odd number: Lightning halves it over two processes"
    for key in ("select", "selected_step", "n_candidates", "stopped_by_patience", "steps"):
        assert one[key] == two[key], key
    assert 0 < one["selected_step"] < one["steps"], "the last weights would prove nothing"
    assert [row["step"] for row in rows1] == [row["step"] for row in rows2]
    for row1, row2 in zip(rows1, rows2, strict=True):
        for key in untimed(row1):
            # cosines near 1, which torchmetrics keeps in float32
            near = 1e-3 if key.endswith(("pearson", "spearman", "spread")) else 1e-8
            assert row1[key] == pytest.approx(row2[key], rel=1e-5, abs=near), (key, row1["step"])
    for name in state1:
        assert torch.allclose(state1[name].double(), state2[name].double(), atol=1e-9), name
