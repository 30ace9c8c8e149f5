"""Draws of training examples: nested, random, with the shares of the classes kept."""

import numpy as np
import pytest

from isotrain.analysis.data_scale.measures import held_out, nested_order, sizes

UNEVEN = np.repeat([0, 1, 2], [700, 250, 50])[np.random.default_rng(0).permutation(1000)]


def test_every_prefix_has_every_class_in_its_share():
    order = nested_order(UNEVEN, 3)
    counts_NC = np.cumsum(np.eye(3)[UNEVEN[order]], axis=0)
    share_C = np.array([0.7, 0.25, 0.05])
    away_NC = np.abs(counts_NC - np.arange(1, 1001)[:, None] * share_C)
    assert (away_NC <= (1 + 3 * share_C) / 2 + 1e-9).all()


@pytest.mark.parametrize("n", [8, 32, 100, 1000])
def test_a_fifth_of_every_class_is_held_out(n):
    own = UNEVEN[nested_order(UNEVEN, 0)[:n]]
    held = held_out(own, np.arange(n))
    for one in range(3):
        count = int((own == one).sum())
        assert abs(held[own == one].sum() - count / 5) <= 0.6
    assert 0 < held.sum() < n


def test_something_is_held_out_in_any_case():
    one_of_each = np.array([0, 1, 2, 3])
    assert held_out(one_of_each, np.arange(4)).tolist() == [False, False, False, True]
    assert held_out(one_of_each, np.zeros(4)).tolist() == [False, False, False, True]


def test_no_group_stands_on_both_sides_and_a_fifth_is_held_out_still():
    premise = np.repeat(np.arange(200), 3)  # three pairs of each, one a class
    label = np.tile([0, 1, 2], 200)
    order = nested_order(label, 0)
    held = held_out(label[order], premise[order])
    assert not set(premise[order][held]) & set(premise[order][~held])
    assert abs(held.sum() - 120) <= 6
    assert set(label[order][held]) == {0, 1, 2}
    by_pair = held_out(label[order], np.arange(600))
    assert set(premise[order][by_pair]) & set(premise[order][~by_pair]), "which pairs would not do"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((100, 32, 2.0), [32, 64, 100]),
        ((128, 32, 2.0), [32, 64, 128]),
        ((2490, 512, 2.0), [512, 1024, 2490]),  # 2048 would be too near
        ((20, 32, 2.0), [20]),
        ((12, 8, 1.1), [8, 9, 10, 11, 12]),
    ],
)
def test_sizes_grow_by_a_factor_and_end_with_all(given, expected):
    assert sizes(*given) == expected
