"""An interrupted run has the isotropy values and snapshots of one that was not, bit by bit."""

import numpy as np
import pytest

from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records
from isotrain.runs.keys import parse_key
from isotrain.runs.snapshots import read_snapshots
from tests.stopped_runs import fail, stopped, terminate
from tools.kill_points import untimed


@pytest.fixture
def overrides(small, tmp_path):
    """12 steps, evaluated at 0, 5, 10 and 12, with a checkpoint every 4."""
    return (
        *small,
        *("task=wic", "isotropy=cluster_pca", "isotropy.n_clusters=2", "site=[tokens,pooled]"),
        "metric=[isoscore,outlier_dims,scatter_ratio,self_similarity,cosine_drift,linear_cka]",
        "metric.self_similarity.function.min_count=2",
        *("monitor.max_rows=40", "monitor.map_rows=16", "monitor.every_steps=2"),
        *("trainer.val_check_interval=5", "checkpoint.every_steps=4", "checkpoint.final=false"),
        f"output_dir={tmp_path / 'runs'}",
    )


def result(cfg):
    """Rows and snapshots of a run, trained to its end."""
    run(cfg)
    folder = folder_of(cfg)
    rows = [untimed(row) for row in read_records(folder / "metrics.jsonl")]
    assert [path.suffix for path in (folder / "snapshots").iterdir()] == [".npz"] * 4
    return rows, read_snapshots(folder)


@pytest.mark.campaign
def test_rows_and_snapshots_have_no_gap_and_no_duplicate(
    composed, overrides, tmp_path, monkeypatch
):
    whole, maps = result(composed(*overrides, f"output_dir={tmp_path / 'whole'}"))
    measured = [row["step"] for row in whole if any(k.startswith("isotropy/") for k in row)]
    steps = [row["step"] for row in whole if any(k.startswith("train_isotropy/") for k in row)]
    assert measured == [0, 5, 10, 12] == list(maps)
    assert steps == [2, 4, 6, 8, 10, 12]
    last = [row for row in whole if "isotropy/cosine_drift/layer_02/tokens" in row][-1]
    assert last["isotropy/cosine_drift/layer_02/tokens"] > 1e-6
    for number, (method, at, how) in enumerate(
        [
            ("training_step", 8, fail),  # back to step 4; a row of step 6 was written since
            ("validation_step", 4 + 4 + 2, terminate),  # in the evaluation of step 10
        ]
    ):
        cfg = composed(*overrides, f"output_dir={tmp_path / f'cut{number}'}")
        stopped(cfg, monkeypatch, method, at, how)
        rows, arrays = result(cfg)
        for one, two in zip(whole, rows, strict=True):
            assert one.keys() == two.keys()
            differing = [k for k in one if parse_key(k) and one[k] != two[k]]
            assert differing == [], (method, at)
        assert list(arrays) == list(maps)
        for step, stored in maps.items():
            assert stored.keys() == arrays[step].keys()
            same = (np.array_equal(x, arrays[step][name]) for name, x in stored.items())
            assert all(same), (method, at, step)


def test_selected_weights_are_measured_at_their_step(composed, overrides, tmp_path):
    """The evaluation of the weights put back replaces the snapshot of their step, as equal."""
    cfg = composed(*overrides, "training.select=best", "trainer.val_check_interval=3")
    run(cfg)
    folder = folder_of(cfg)
    rows = [row for row in read_records(folder / "metrics.jsonl") if "val/accuracy" in row]
    *before, selected = rows
    (same,) = [row for row in before if row["step"] == selected["step"]]
    assert {k: v for k, v in same.items() if parse_key(k)} == {
        k: v for k, v in selected.items() if parse_key(k)
    }
    assert list(read_snapshots(folder)) == [0, 3, 6, 9, 12]
