"""Scatter ratio against the loop over classes, variance analysis and permutations."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway

from isotrain.metrics.scatter_ratio import scatter_ratio
from tests.metrics.clouds import cloud


def by_hand(x, labels):
    x, labels = x.double().numpy(), labels.numpy()
    mean_D, between, within = x.mean(axis=0), 0.0, 0.0
    for c in np.unique(labels):
        rows = x[labels == c]
        between += len(rows) * ((rows.mean(axis=0) - mean_D) ** 2).sum()
        within += ((rows - rows.mean(axis=0)) ** 2).sum()
    return between / within, between / (between + within)


def both(x, labels):
    found = scatter_ratio(x, labels)
    return found["value"].item(), found["share"].item()


@pytest.mark.parametrize(("n", "d", "c"), [(5, 1, 2), (30, 4, 3), (8, 50, 2), (300, 20, 7)])
def test_equals_the_loop_over_classes(n, d, c):
    x, labels = cloud(n, d, seed=n, mean=2.0), torch.arange(n) % c
    x = x + labels[:, None] * 0.3
    assert both(x, labels) == pytest.approx(by_hand(x, labels), rel=1e-10)


def test_one_dimension_is_the_f_statistic():
    x, labels = cloud(40, 1, seed=1), torch.arange(40) % 4
    statistic = f_oneway(*[x[labels == c, 0].numpy() for c in range(4)]).statistic
    assert both(x, labels)[0] * 36 / 3 == pytest.approx(statistic, rel=1e-10)


def test_closed_form_of_two_points_per_class():
    x = torch.tensor([[0.0, 1.0], [0.0, -1.0], [6.0, 1.0], [6.0, -1.0]])
    assert both(x, torch.tensor([0, 0, 1, 1])) == pytest.approx((9.0, 0.9), rel=1e-12)


def test_mean_share_over_all_permutations_of_labels_is_c_minus_one_over_n_minus_one():
    x = cloud(6, 3, seed=2)
    for labels in ([0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 1, 1]):
        shares = [both(x, torch.tensor(p))[1] for p in set(itertools.permutations(labels))]
        assert np.mean(shares) == pytest.approx((len(set(labels)) - 1) / 5, rel=1e-10)


def test_collapsed_classes_have_no_ratio():
    points = cloud(3, 5, seed=3, mean=9.0)
    with pytest.raises(ValueError, match=r"each of 3 classes are equal \(N = 24\); measure more"):
        scatter_ratio(points.repeat(8, 1), torch.arange(3).repeat(8))
    with pytest.raises(ValueError, match=r"each of 4 classes are equal \(N = 4\)"):
        scatter_ratio(cloud(4, 2), torch.arange(4))  # every row its own class


@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_equal_rows_have_neither_scatter(value):
    x = torch.full((1_001, 5), value, dtype=torch.float64)
    assert both(x, torch.arange(1_001) % 2) == (0.0, 0.0)


def test_equal_class_means_give_zero():
    x = cloud(9, 4, seed=4, mean=3.0)
    assert both(torch.cat([x, x]), torch.arange(2).repeat_interleave(9)) == (0.0, 0.0)
