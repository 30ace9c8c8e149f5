"""The stored null band against fresh Gaussian clouds measured by `partition` itself."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import TABLE, gaussian_null, partition_null
from tests.clouds import light, normal


def gaussian(n, d, rms, seed):
    return normal(n, d, seed=seed, mean=0.0) * (rms / math.sqrt(d))


def log_ratio(a, b):
    return abs(math.log(a / b))


# On and off the nodes of the table, N below, at and above D, both regimes of the rms norm.
@pytest.mark.parametrize(
    ("n", "d", "rms", "draws"),
    [
        *[(2, 4, 1.0, 600), (3, 3, 2.0, 600), (5, 1, 1.0, 600), (4, 8, 0.01, 600)],
        *[(23, 50, 6.0, 300), (32, 768, 15.0, 200), (32, 768, 8.0, 200), (64, 64, 5000.0, 200)],
        *[(277, 96, 0.1, 60), (500, 48, 11.0, 60), (100, 3000, 20.0, 40), (1500, 20, 3.0, 60)],
    ],
)
def test_median_and_coverage_of_fresh_clouds(n, d, rms, draws):
    band = gaussian_null(n, d, rms)
    value = torch.stack([partition(gaussian(n, d, rms, seed)) for seed in range(draws)])
    assert band.low < band.median < band.high < 0.0
    spread = math.log(band.low / band.high) / 4.0  # about the sd of ln(−ln I)
    error = log_ratio(band.median, value.median().item())
    assert error < 0.05 + 5.0 * spread / math.sqrt(draws)
    inside = ((value >= band.low) & (value <= band.high)).double().mean().item()
    assert inside > 0.95 - 0.04 - 4.0 * math.sqrt(0.05 * 0.95 / draws)
    assert 0.2 < (value < band.median).double().mean().item() < 0.8


def test_values_of_the_methods_reference():
    # Its draws, I itself: rms norm 15, D = 768.
    small, dev = gaussian_null(32, 768, 15.0), gaussian_null(277, 768, 15.0)
    assert math.exp(small.median) == pytest.approx(0.004, abs=0.0015)
    assert math.exp(small.high) == pytest.approx(0.011, abs=0.002)
    assert [math.exp(v) for v in dev] == pytest.approx([0.24, 0.302, 0.34], abs=0.02)
    assert math.exp(gaussian_null(32, 768, 8.0).median) == pytest.approx(0.15, abs=0.02)


def test_metric_is_the_band_of_n_d_and_the_uncentred_rms_norm():
    x = gaussian(40, 12, 3.0, seed=1) + 2.0
    rms = math.sqrt(sum(float(row @ row) for row in x) / 40)
    found = partition_null(x)
    assert list(found) == ["low", "median", "high"]
    assert [v.item() for v in found.values()] == pytest.approx(
        gaussian_null(40, 12, rms), rel=1e-12
    )
    assert all(v.dtype == torch.float64 and v.ndim == 0 for v in found.values())


@given(st.integers(2, 131_072), st.integers(1, 8192), st.floats(-7.0, 9.0))
@light
def test_everywhere_on_the_grid_ordered_and_falling_with_the_rms_norm(n, d, exponent):
    rms = 10.0**exponent
    band = gaussian_null(n, d, rms)
    assert -math.inf < band.low < band.median < band.high < 0.0
    larger = gaussian_null(n, d, 1.2 * rms)
    assert all(a < b for a, b in zip(larger, band, strict=True))


@pytest.mark.parametrize("node", [0.25, 1.0, 16.0, 1024.0])
def test_nodes_are_the_stored_values_and_the_band_is_continuous(node):
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    i, j, k = 4, 9, stored["norms"].index(node)
    n, d = stored["rows"][i], stored["widths"][j]
    expected = [-node * math.exp(h / 1000.0) for h in stored["table"][i][j][k]]
    assert gaussian_null(n, d, node) == pytest.approx(expected, rel=1e-12)
    for near in (node * (1 - 1e-9), node * (1 + 1e-9)):
        assert gaussian_null(n, d, near) == pytest.approx(expected, rel=1e-6)


def test_table_is_small_and_complete():
    stored = json.loads(TABLE.read_text(encoding="utf-8"))
    assert TABLE.stat().st_size < 60_000
    table = torch.tensor(stored["table"])
    assert table.shape == (17, 14, 13, 3)
    assert torch.tensor(stored["draws"]).shape == table.shape[:2]
    low, median, high = table.unbind(dim=-1)
    assert bool((low > median).all())
    assert bool((median > high).all())


@pytest.mark.parametrize(("n", "d"), [(1, 8), (131_073, 8), (8, 0), (8, 8193)])
def test_outside_the_grid_the_grid_is_named(n, d):
    with pytest.raises(
        ValueError, match=rf"N = 2 to 131072 and D = 1 to 8192, got N = {n}, D = {d}"
    ):
        gaussian_null(n, d, 1.0)
