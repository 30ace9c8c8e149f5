"""NMI and ARI of clusters and labels against scikit-learn."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from isotrain.geometry.kmeans import kmeans
from isotrain.metrics.cluster_label_nmi import _ari, _nmi, cluster_label_nmi
from tests.metrics.clouds import cloud, light


def blobs(n, d, c, seed=0, gap=40.0):
    """`c` round clusters far apart, and which one each row is of."""
    centre_CD = torch.eye(c, d, dtype=torch.float64) * gap
    return centre_CD[torch.arange(n) % c] + cloud(n, d, seed), torch.arange(n) % c


def table(clusters, labels):
    found = torch.zeros(int(clusters.max()) + 1, int(labels.max()) + 1, dtype=torch.float64)
    for a, b in zip(clusters.tolist(), labels.tolist(), strict=True):
        found[a, b] += 1
    return found


def both(x, labels, **options):
    found = cluster_label_nmi(x, labels, **options)
    return found["nmi"].item(), found["ari"].item()


@given(st.integers(2, 60), st.integers(1, 6), st.integers(2, 6), st.integers(0, 10_000))
@light
def test_the_two_indices_equal_scikit_learn(n, n_clusters, n_classes, seed):
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.randint(0, n_clusters, (n,), generator=generator)
    labels = torch.randint(0, n_classes, (n,), generator=generator)
    labels[:2] = torch.tensor([0, 1])
    counts = table(clusters, labels)
    expected = normalized_mutual_info_score(labels, clusters)
    assert _nmi(counts).item() == pytest.approx(expected, abs=1e-12)
    assert _ari(counts).item() == pytest.approx(adjusted_rand_score(labels, clusters), abs=1e-12)


@pytest.mark.parametrize(("n", "d", "k"), [(40, 3, 2), (100, 8, 5), (12, 30, 3), (5, 2, 8)])
def test_the_metric_is_that_of_its_k_means(n, d, k):
    x, labels = cloud(n, d, seed=n), torch.arange(n) % 2
    centred = (x - x.mean(dim=0)) / (x - x.mean(dim=0)).abs().amax()
    generator = torch.Generator().manual_seed(3)
    clusters = kmeans(centred, k, generator=generator, n_iterations=100).assignment_N
    expected = (
        normalized_mutual_info_score(labels, clusters),
        adjusted_rand_score(labels, clusters),
    )
    assert both(x, labels, n_clusters=k, seed=3) == pytest.approx(expected, abs=1e-12)


def test_found_clusters_that_are_the_labels_score_one():
    x, labels = blobs(60, 5, 3)
    assert both(x, labels, n_clusters=3) == pytest.approx((1.0, 1.0), abs=1e-12)


def test_more_clusters_than_classes_stay_below_one():
    x, eight = blobs(800, 8, 8)
    nmi, ari = both(x, eight % 2)
    assert nmi == pytest.approx(2 * math.log(2) / (math.log(2) + math.log(8)), abs=1e-12)
    assert ari < 1.0


def test_unrelated_labels_score_about_zero():
    x, _ = blobs(800, 8, 8)
    labels = torch.randint(0, 2, (800,), generator=torch.Generator().manual_seed(1))
    nmi, ari = both(x, labels)
    assert nmi < 0.02
    assert abs(ari) < 0.02


@given(st.integers(8, 30), st.integers(2, 8), st.integers(0, 10_000))
@light
def test_invariances_on_separate_clusters(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x, blob = blobs(n, d, 2, seed)
    labels = (blob + (torch.rand(n, generator=generator) < 0.3)) % 2
    labels[:2] = torch.tensor([0, 1])
    rotation, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    value = both(x, labels, n_clusters=2)
    assert 0.0 <= value[0] <= 1.0
    for moved in (x @ rotation, x + 4_000.0, x * 1e-3, x * 1e200, x * 1e-200):
        assert both(moved, labels, n_clusters=2) == pytest.approx(value, abs=1e-12)
    assert both(x, 5 - 2 * labels, n_clusters=2) == pytest.approx(value, abs=1e-12)
    order = torch.randperm(n, generator=generator)
    assert both(x[order], labels[order], n_clusters=2) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_equal_rows_are_one_cluster(value):
    x = torch.full((1_001, 5), value, dtype=torch.float64)
    assert both(x, torch.arange(1_001) % 2) == (0.0, 0.0)


def test_one_cluster_says_nothing_and_every_row_its_own_all():
    x = cloud(6, 3, seed=1)
    assert both(x, torch.arange(6) % 2, n_clusters=1) == (0.0, 0.0)
    assert both(x * 1.0, torch.arange(6), n_clusters=6) == pytest.approx((1.0, 1.0))


def test_errors():
    x, labels = cloud(6, 3), torch.arange(6) % 2
    with pytest.raises(ValueError, match="n_clusters must be at least 1"):
        cluster_label_nmi(x, labels, n_clusters=0)
    with pytest.raises(ValueError, match="slice a score"):
        cluster_label_nmi(x, labels + 0.5)
    with pytest.raises(ValueError, match="two classes"):
        cluster_label_nmi(x, labels * 0)
