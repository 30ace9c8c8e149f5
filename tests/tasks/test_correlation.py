"""Correlations as scores: those of torchmetrics, and nothing where they are undefined."""

import json

import pytest
import torch
import torchmetrics

from isotrain.results.frame import study_rows
from isotrain.results.runs import run_of
from isotrain.runner import folder_of
from isotrain.runs.files import read_result
from isotrain.studies.definition import Study
from isotrain.tasks.correlation import Pearson, Spearman
from tests.parts import STSB
from tests.stopped_runs import finished

THEIRS = {Spearman: torchmetrics.SpearmanCorrCoef, Pearson: torchmetrics.PearsonCorrCoef}


def updated(metric, p_n, y_n, size=8):
    for p_b, y_b in zip(p_n.split(size), y_n.split(size), strict=True):
        metric.update(p_b, y_b)
    return metric


@pytest.mark.filterwarnings("ignore:.*will save all targets")
@pytest.mark.parametrize("kind", THEIRS)
@pytest.mark.parametrize("n", [2, 17, 200])
def test_a_defined_one_is_that_of_torchmetrics_bit_by_bit(kind, n):
    p_n, y_n = torch.rand(2, n, generator=torch.Generator().manual_seed(n))
    y_n = (5 * y_n).round() / 5 + 0.01 * torch.arange(n)  # with ties
    theirs = updated(THEIRS[kind](), p_n, y_n).compute()
    assert theirs != 0
    assert torch.equal(updated(kind(), p_n, y_n).compute(), theirs)


@pytest.mark.filterwarnings("ignore:.*before the ``update`` method")
@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize(
    ("p_n", "y_n"),
    [
        ([0.1, 0.7, 0.2] * 9, [0.4] * 27),  # rounding of a mean is no spread
        ([0.3] * 27, [0.1, 0.7, 0.2] * 9),
        ([0.5], [0.2]),
        ([], []),
        ([0.1, float("nan")], [0.1, 0.2]),
    ],
)
def test_without_spread_on_either_side_it_is_not_a_number(p_n, y_n, size):
    metrics = STSB().metrics()
    if p_n:
        updated(metrics, torch.tensor(p_n), torch.tensor(y_n), size)
    assert {name: float(value) != float(value) for name, value in metrics.compute().items()} == {
        "pearson": True,
        "spearman": True,
    }


def test_no_table_selection_or_record_has_a_score_of_equal_labels(
    composed, small, write_fixture_data, tmp_path
):
    file = write_fixture_data(tmp_path / "data") / "stsb" / "dev.jsonl"
    rows = [json.loads(line) | {"score": 2.0} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ("task=stsb", f"source.root={tmp_path / 'data'}", f"output_dir={tmp_path}", "metric=[]")
    cfg = composed(*small, *more, "training.select=best", "trainer.max_steps=4", "threads=1")
    finished(cfg)
    folder = folder_of(cfg)
    recorded = json.loads((folder / "result.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    of_dev = [row["val/spearman"] for row in lines if "val/spearman" in row]
    assert of_dev == [None] * len(of_dev) != []
    assert recorded["scores"]["val/spearman"] is recorded["scores"]["val/pearson"] is None
    assert (recorded["select"], recorded["degenerate"]) == ("last", False)
    run = run_of(read_result(folder), folder, "stsb", "none", 0)
    assert "val/spearman" in run.shown
    study = Study(
        name="s", tasks={"stsb": ("task=stsb",)}, methods={"none": ()}, baseline="none", seeds=(0,)
    )
    found = [row.score for row in study_rows(study, [run]) if row.baseline]
    assert "test/spearman" in found
    assert "val/spearman" not in found
