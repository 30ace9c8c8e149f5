"""Scatter of classes, what removal takes of it, and silhouettes against loops."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

from isotrain.metrics.label_silhouette import label_silhouette
from isotrain.metrics.removed_label_scatter import removed_label_scatter
from isotrain.metrics.scatter_ratio import scatter_ratio
from tests.clouds import cloud


def between_of(x, labels):
    """The scatter of the class means, class by class."""
    found = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for c in labels.unique():
        offset = x[labels == c].mean(dim=0) - x.mean(dim=0)
        found += (labels == c).sum() * torch.outer(offset, offset)
    return found


def ratio_by_hand(x, labels):
    between = between_of(x, labels).trace().item()
    rows = [x[labels == c] for c in labels.unique()]
    within = sum((part - part.mean(dim=0)).square().sum().item() for part in rows)
    return between / within, between / (between + within)


def ratio(x, labels):
    found = scatter_ratio(x, labels)
    return found["value"].item(), found["share"].item()


@pytest.mark.parametrize(("n", "d", "c"), [(5, 1, 2), (30, 4, 3), (8, 50, 2), (300, 20, 7)])
def test_equals_the_loop_over_classes(n, d, c):
    x, labels = cloud(n, d, seed=n, mean=2.0), torch.arange(n) % c
    x = x + labels[:, None] * 0.3
    assert ratio(x, labels) == pytest.approx(ratio_by_hand(x, labels), rel=1e-10)


def test_mean_share_over_all_permutations_of_labels_is_c_minus_one_over_n_minus_one():
    x = cloud(6, 3, seed=2)
    for labels in ([0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 1, 1]):
        shares = [ratio(x, torch.tensor(p))[1] for p in set(itertools.permutations(labels))]
        assert np.mean(shares) == pytest.approx((len(set(labels)) - 1) / 5, rel=1e-10)


def test_collapsed_classes_have_no_ratio():
    points = cloud(3, 5, seed=3, mean=9.0)
    with pytest.raises(ValueError, match=r"each of 3 classes are equal \(N = 24\); measure more"):
        scatter_ratio(points.repeat(8, 1), torch.arange(3).repeat(8))
    with pytest.raises(ValueError, match=r"each of 4 classes are equal \(N = 4\)"):
        scatter_ratio(cloud(4, 2), torch.arange(4))  # every row its own class


def removed(x, labels, **options):
    found = removed_label_scatter(x, labels, **options)
    return found["value"].item(), found["explained"].item()


@pytest.mark.parametrize(("n", "d", "k"), [(30, 4, 1), (60, 10, 3), (20, 50, 5), (200, 12, 12)])
def test_is_the_ratio_of_traces(n, d, k):
    x, labels = cloud(n, d, seed=n, mean=3.0), torch.arange(n) % 3
    pca = PCA(k, svd_solver="full").fit(x.numpy())
    v = torch.from_numpy(pca.components_.T)
    between = between_of(x, labels)
    expected = ((v.T @ between @ v).trace() / between.trace()).item()
    found = removed(x, labels, n_directions=k)
    assert found == pytest.approx((expected, pca.explained_variance_ratio_.sum()), abs=1e-9)


def test_silhouette_is_scikit_learns_and_its_subsample_seeded_and_close():
    n = 1_500
    labels = torch.arange(n) % 2
    x = cloud(n, 4, seed=1) + 2.0 * labels[:, None]
    everything = label_silhouette(x, labels).item()
    assert everything == pytest.approx(silhouette_score(x.numpy(), labels.numpy()), abs=1e-12)
    first = label_silhouette(x, labels, max_rows=500).item()
    assert first == label_silhouette(x, labels, max_rows=500).item()
    assert first != label_silhouette(x, labels, max_rows=500, seed=1).item()
    assert first != everything
    assert first == pytest.approx(everything, abs=0.03)
    assert label_silhouette(x, labels, max_rows=n).item() == everything
    assert label_silhouette(x, labels, max_rows=n, seed=9).item() == everything
