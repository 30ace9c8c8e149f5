"""Each metric on a stored cloud; values from NumPy (tests/golden/clouds_regenerate.py)."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from isotrain.metrics.isoscore_star import isoscore_star
from isotrain.metrics.suite import find, flat

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "clouds.json").read_text())
METRICS = Path(__file__).parents[2] / "isotrain" / "metrics"
STAR = partial(
    isoscore_star,
    reference_covariance=torch.diag(torch.arange(1.0, 9.0)),
    shrinkage=GOLDEN["shrinkage"],
)


@pytest.mark.parametrize("name", sorted(GOLDEN["metrics"]))
def test_value_on_the_stored_cloud(name):
    x = torch.tensor(GOLDEN["cloud"], dtype=torch.float64)
    assert x.shape == (64, 8)
    metric = STAR if name == "isoscore_star" else find(name)
    found = {key: value.item() for key, value in flat(name, metric(x)).items()}
    wanted = flat(name, GOLDEN["metrics"][name])
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-10)


def test_every_moment_metric_is_stored():
    marked = {p.stem for p in METRICS.glob("*.py") if "\n@from_moments" in p.read_text()}
    assert len(marked) >= 12
    assert marked | {"isoscore_star", "partition"} == set(GOLDEN["metrics"])
