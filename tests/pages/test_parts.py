"""Every part of a metric and every counter that a run may log has its line."""

from __future__ import annotations

import pytest
import torch

from isotrain.geometry.cluster_pca import fit_cluster_pca
from isotrain.metrics.lid import lid_estimate
from isotrain.metrics.outlier_dims import outlier_dims
from isotrain.metrics.self_similarity import self_similarity
from isotrain.objectives.base import mean_loss
from isotrain.pages.parts import COUNTERS, NUMBER, counter_readings, part_readings
from isotrain.training.monitor.measurement import site_measures
from isotrain.transforms.cut_tails import CutTails

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("outlier_dims", outlier_dims(X)),
        ("lid", lid_estimate(X, n_neighbors=3)),
        ("self_similarity", self_similarity(X, torch.arange(24) // 4, min_count=2)),
    ],
)
def test_parts_of_a_metric(metric, found):
    told = {name for name, _ in part_readings(f"{metric}_{part}" for part in found)}
    names = {NUMBER.sub("", f"{metric}_{part}") for part in found}
    assert names - told <= {f"{metric}_value", f"{metric}_index"}
    assert len(told) >= 2


def test_counters_of_layers_and_objectives():
    labels = torch.arange(24) % 2
    found = {
        *site_measures(X, X / 2, labels, X),
        *fit_cluster_pca(X, 2, 1, generator=torch.Generator()).counters,
        *CutTails(X.shape[1]).estimate(X).counters,
        *mean_loss(lambda x: x.sum(), [[X]], 1)[1],
    }
    assert found - set(COUNTERS) == set()
    keys = [f"train/pooled/{name}" for name in found]
    assert {name for name, _ in counter_readings([*keys, "train/loss"])} == found
