"""Each metric on a stored cloud; values from NumPy (tests/golden/clouds_regenerate.py)."""

import json
from pathlib import Path

import pytest
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "clouds.json").read_text())


@pytest.mark.parametrize("metric", [isoscore, mean_cosine, partition], ids=lambda m: m.__name__)
def test_value_on_the_stored_cloud(metric):
    x = torch.tensor(GOLDEN["cloud"], dtype=torch.float64)
    assert x.shape == (64, 8)
    assert metric(x).item() == pytest.approx(GOLDEN["metrics"][metric.__name__], abs=1e-10)


def test_every_stored_metric_is_compared():
    assert set(GOLDEN["metrics"]) == {"isoscore", "mean_cosine", "partition"}
