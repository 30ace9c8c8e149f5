"""The words of every metric are at the head of its yaml, and docs/metrics.md has them."""

from pathlib import Path

import pytest
import torch

from isotrain.metrics.lid import lid_estimate
from isotrain.metrics.outlier_dims import outlier_dims
from isotrain.metrics.self_similarity import self_similarity
from isotrain.objectives.base import mean_loss
from isotrain.pages.run_tables import COUNTERS
from isotrain.results.readings import part_reading, readings
from isotrain.training.monitor.measurement import site_measures
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.cut_tails import CutTails
from tools.metric_table import PAGE, with_table

ROOT = Path(__file__).parents[2]
X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))


def test_every_metric_has_its_words():
    names = {path.stem for path in (ROOT / "conf" / "metric").glob("*.yaml")}
    assert set(readings()) == names
    assert len(names) >= 31
    for name, reading in readings().items():
        assert all(isinstance(text, str) and text for text in reading[:8]), name


def test_a_metric_without_the_whole_head_has_no_words_and_costs_no_page(tmp_path, monkeypatch):
    folder = tmp_path / "metric"
    folder.mkdir()
    whole = (ROOT / "conf" / "metric" / "isoscore.yaml").read_text("utf-8")
    heads = {"whole": whole, "none": "mine:\n", "prose": "# A norm: of each [row.\n"}
    heads |= {"part": "# label: norm\n", "more": "# unit: m\n" + whole}
    for name, text in heads.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    monkeypatch.setattr("isotrain.results.readings.shipped", lambda group: tmp_path / group)
    assert set(readings.__wrapped__()) == {"whole"}


def test_the_table_of_the_docs_is_made_of_them():
    text = PAGE.read_text("utf-8")
    assert with_table(text) == text, "run python tools/metric_table.py"


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("outlier_dims", outlier_dims(X)),
        ("lid", lid_estimate(X, n_neighbors=3)),
        ("self_similarity", self_similarity(X, torch.arange(24) // 4, min_count=2)),
    ],
)
def test_the_parts_of_a_metric_are_reported(metric, found):
    untold = {part for part in found if not part_reading(f"{metric}_{part}")}
    assert untold <= {"value", *(f"index_{k}" for k in (1, 2, 3))}


def test_every_counter_of_layers_and_objectives_is_reported():
    labels = torch.arange(24) % 2
    found = {
        *site_measures(X, X / 2, labels, X),
        *ClusterPCA(X.shape[1], 2, 1).estimate(X).counters,
        *CutTails(X.shape[1]).estimate(X).counters,
        *mean_loss(lambda x: x.sum(), [[X]], 1)[1],
    }
    assert found - set(COUNTERS) == set()
