"""Groups of rows against loops over groups and pairs."""

import pytest
import torch

from isotrain.geometry.groups import (
    check_groups,
    first_direction_share,
    hashed_order,
    sample_groups,
)
from tests.clouds import cloud


def test_the_order_is_a_fixed_permutation_per_seed():
    order = hashed_order(1000, seed=3)
    assert order.sort().values.tolist() == list(range(1000))
    assert torch.equal(order, hashed_order(1000, seed=3))
    for other in (0, 4, ~3, -3, 2**60):
        assert (order == hashed_order(1000, seed=other)).sum() < 15
    # No trend: a random permutation has rank correlation 0 ± 0.03 with the positions.
    place = order.double() - 499.5
    trend = (place @ (torch.arange(1000.0, dtype=torch.float64) - 499.5)) / place.square().sum()
    assert abs(float(trend)) < 0.1


def test_a_sample_does_not_know_the_names_and_every_row_has_its_chance():
    groups = torch.tensor([0, 0, 0, 1, 1])
    found, renamed = (check_groups(torch.zeros(5, 1), g) for g in (groups, 5 - groups))
    both = torch.tensor([True, True])
    drawn = torch.zeros(5)
    for seed in range(300):
        sample = sample_groups(found, both, 1, seed)
        assert torch.equal(sample, sample_groups(renamed, both, 1, seed).flip(0))
        drawn[sample.flatten()] += 1
    assert drawn[:3].tolist() == pytest.approx([100] * 3, abs=40)
    assert drawn[3:].tolist() == pytest.approx([150] * 2, abs=45)


def test_share_of_sets_without_scatter_and_at_extreme_scales():
    x = torch.stack([torch.zeros(4, 3), torch.full((4, 3), 0.1), torch.ones(4, 3) * -1e-200])
    assert first_direction_share(x.double(), center=True).tolist() == [1.0, 1.0, 1.0]
    for n in range(2, 60):  # what rounding leaves of equal rows is one direction
        equal = torch.full((1, n, 3), 16_000.3, dtype=torch.float64)
        assert first_direction_share(equal, center=True).item() == pytest.approx(1.0, abs=1e-12)
    assert first_direction_share(x.double()).tolist() == pytest.approx([1.0] * 3, abs=1e-14)
    rows = cloud(5, 3)
    expected = first_direction_share(rows[None]).item()
    for scale in (1e-200, 1e200):
        assert first_direction_share(rows[None] * scale).item() == pytest.approx(expected)
