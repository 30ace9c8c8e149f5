"""Correlations as scores: those of torchmetrics, and nothing where they are undefined."""

import json

import pandas as pd
import pytest
import torch
import torchmetrics
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import matthews_corrcoef

from isotrain.results.frame import study_rows
from isotrain.results.runs import run_of
from isotrain.runner import folder_of
from isotrain.runs.files import read_result
from isotrain.runs.predictions import read_predictions
from isotrain.studies.definition import Study
from isotrain.tasks.correlation import Matthews, Pearson, Spearman, SpearmanWithin
from isotrain.tasks.regression import Regression
from tests.parts import STSB
from tests.processes import on_ranks
from tests.stopped_runs import finished


def updated(metric, p_n, y_n, size=8):
    for p_b, y_b in zip(p_n.split(size), y_n.split(size), strict=True):
        metric.update(p_b, y_b)
    return metric


@pytest.mark.filterwarnings("ignore:.*will save all targets")
@pytest.mark.parametrize("n", [2, 17, 200])
def test_defined_ones_are_those_of_torchmetrics_and_scipy(n):
    p_n, y_n = torch.rand(2, n, generator=torch.Generator().manual_seed(n))
    y_n = (5 * y_n).round() / 5 + 0.01 * torch.arange(n)  # with ties
    theirs = updated(torchmetrics.SpearmanCorrCoef(), p_n, y_n).compute()
    assert theirs != 0
    assert torch.equal(updated(Spearman(), p_n, y_n).compute(), theirs)
    found = updated(Pearson(), p_n, y_n).compute()
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(pearsonr(p_n.double(), y_n.double()).statistic, abs=1e-7)


@pytest.mark.parametrize("outlier", [1e3, 1e6])
def test_pearson_is_defined_beside_a_far_outlier(outlier):
    p_n, y_n = torch.randn(2, 20_000, generator=torch.Generator().manual_seed(0))
    y_n[0] += outlier
    found = updated(Pearson(), p_n, y_n, size=64).compute().item()
    assert found == pytest.approx(pearsonr(p_n.double(), y_n.double()).statistic, abs=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["equal predictions", "equal labels", "any"])
def test_matthews_is_that_of_scikit_learn_and_0_for_one_class(n_classes, kind):
    label, predicted = torch.randint(
        n_classes, (2, 300), generator=torch.Generator().manual_seed(1)
    )
    predicted = torch.ones_like(label) if kind == "equal predictions" else predicted
    label = torch.ones_like(label) if kind == "equal labels" else label
    found = updated(Matthews(num_classes=n_classes), predicted, label).compute().item()
    assert found == pytest.approx(matthews_corrcoef(label, predicted), abs=1e-7)
    assert (found == 0) == (kind != "any")


def of_rank(rank):
    """Correlations of three batches that two processes share."""
    generator = torch.Generator().manual_seed(0)
    p_n, y_n = torch.rand(2, 30, generator=generator)
    group_n = torch.arange(30) % 3
    pearson, within_groups = Pearson(), SpearmanWithin()
    for start in (0, 10, 20)[rank::2]:
        part = slice(start, start + 10)
        pearson.update(p_n[part], y_n[part])
        within_groups.update(p_n[part], y_n[part], group_n[part])
    return float(pearson.compute()), float(within_groups.compute())


def test_two_processes_have_the_values_of_one(tmp_path):
    p_n, y_n = torch.rand(2, 30, generator=torch.Generator().manual_seed(0))
    wanted = float(updated(Pearson(), p_n, y_n).compute()), within(p_n, y_n, torch.arange(30) % 3)
    for found in on_ranks(of_rank, 2, tmp_path):
        assert found == pytest.approx(wanted, abs=1e-6)


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


def within(p_n, y_n, group_n, size=8):
    metric = SpearmanWithin()
    for batch in zip(*(x.split(size) for x in (p_n, y_n, group_n)), strict=True):
        metric.update(*batch)
    return float(metric.compute())


def test_within_groups_it_is_their_mean_of_scipys_weighted_by_examples():
    p_n, y_n = torch.rand(2, 300, generator=torch.Generator().manual_seed(0))
    group_n = torch.randint(3, (300,), generator=torch.Generator().manual_seed(1)) ** 2
    y_n = (5 * y_n).round() + 10 * group_n  # groups alone would rank well
    groups = pd.DataFrame({"p": p_n, "y": y_n}).groupby(group_n.numpy())
    expected = sum(len(g) * spearmanr(g.p, g.y).statistic for _, g in groups) / 300
    assert within(p_n, y_n, group_n) == pytest.approx(expected, abs=1e-5)
    assert abs(expected - spearmanr(p_n, y_n).statistic) > 0.05


def test_a_group_of_equal_labels_is_left_out_and_one_of_equal_predictions_undefined():
    p, y = torch.tensor([0.1, 0.4, 0.3, 0.2, 0.5]), torch.tensor([0.0, 1.0, 1.0, 0.0, 2.0])
    group = torch.tensor([0, 0, 0, 7, 0])
    assert within(p, y, group) == pytest.approx(
        within(p[group == 0], y[group == 0], torch.zeros(4))
    )
    undefined = within(torch.where(group == 0, 0.3, p), y, group)
    assert undefined != undefined
    nothing = within(p, torch.zeros(5), group)
    assert nothing != nothing


def test_groups_are_a_column_of_the_data(composed, small, write_fixture_data, tmp_path):
    data = write_fixture_data(tmp_path / "data")
    for file in (data / "stsb").glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows = [row | {"genre": ["news", "forum"][i % 2]} for i, row in enumerate(rows)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ("task=stsb", "task.group=genre", "task.metrics=[spearman_within,spearman]")
    more = (*more, f"source.root={data}", f"output_dir={tmp_path}", "metric=[]", "data.n_dev=20")
    cfg = composed(*small, *more, "training.select=holdout", "trainer.max_steps=4", "threads=1")
    scores, _, _ = finished(cfg)
    for split, stage in (("dev", "val"), ("test", "test")):
        kept = read_predictions(folder_of(cfg), split)
        of = pd.DataFrame({"p": kept.prediction, "y": kept.label}).groupby(kept.index % 2)
        expected = sum(len(g) * spearmanr(g.p, g.y).statistic for _, g in of) / len(kept.index)
        assert scores[f"{stage}/spearman_within"] == pytest.approx(expected, abs=1e-5)


def test_without_a_column_of_groups_it_is_rejected():
    with pytest.raises(ValueError, match=r"name their column by task\.group"):
        Regression(metrics=["spearman_within"])


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


def test_matthews_is_scored_within_training_and_after_it(composed, small, tmp_path):
    """Lightning validates in inference mode outside `fit`, and without it inside."""
    more = ("task=rte", "task.metrics=[matthews]", "metric=[]", f"output_dir={tmp_path}")
    steps = ("trainer.max_steps=6", "trainer.val_check_interval=2", "threads=1")
    scores, _, _ = finished(composed(*small, *more, *steps))
    assert -1.0 <= scores["val/matthews"] <= 1.0
