"""Clusters chosen by silhouette, and silhouettes, against scikit-learn and the double loop."""

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_samples, silhouette_score
from torch.utils._python_dispatch import TorchDispatchMode

from isotrain.geometry import clusters as silhouette
from isotrain.geometry.clusters import (
    centre_rows,
    choose_clusters,
    silhouette_values,
)
from tests.clouds import blobs, cloud, seeded


@pytest.mark.parametrize("k", [2, 3, 7, 12])
def test_parted_clusters_are_found(k):
    x, label_N = blobs(300, 16, k, seed=k)
    found = choose_clusters(x)
    assert found.n_clusters == k
    assert adjusted_rand_score(label_N, found.assignment_N) == 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_choice_is_that_of_scikit_learn(seed):
    x, _ = blobs(150, 5, 4, seed, apart=1.5)
    scores = {}
    for k in range(2, 9):
        labels = KMeans(k, n_init=10, random_state=0).fit_predict(x.numpy())
        scores[k] = silhouette_score(x.numpy(), labels)
    found = choose_clusters(x, k_max=8)
    reached = silhouette_score(x.numpy(), found.assignment_N.numpy())
    assert reached > max(scores.values()) - 0.01
    assert found.n_clusters == max(scores, key=scores.get)


def test_one_cluster_below_the_threshold():
    x = cloud(200, 32)
    assert choose_clusters(x).n_clusters == 1  # silhouettes of noise are about 0.03
    assert choose_clusters(x, threshold=0.0).n_clusters > 1
    parted, _ = blobs(200, 8, 3)
    best = silhouette_score(parted.numpy(), choose_clusters(parted).assignment_N.numpy())
    assert choose_clusters(parted, threshold=best - 1e-6).n_clusters == 3
    assert choose_clusters(parted, threshold=best + 1e-6).n_clusters == 1


def test_only_the_sample_gets_silhouettes(monkeypatch):
    sizes = []

    def silhouettes(x_ND, labels_N):
        sizes.append((len(x_ND), len(labels_N)))
        return torch.zeros(len(x_ND))

    monkeypatch.setattr("isotrain.geometry.clusters.silhouette_values", silhouettes)
    x, _ = blobs(90, 4, 3)
    assert choose_clusters(x, k_max=4, max_rows=50).n_clusters == 1
    assert sizes == [(50, 50)] * 3
    choose_clusters(x, k_max=2)
    assert sizes[-1] == (90, 90)


def test_repeated_rows_make_no_empty_cluster():
    x = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 7.0]], dtype=torch.float64).repeat(10, 1)
    found = choose_clusters(x)
    assert found.n_clusters == 3
    assert found.assignment_N.bincount().tolist() == [10, 10, 10]


def test_centred_rows():
    x = cloud(20, 3, seed=1)
    torch.testing.assert_close(centre_rows(x + 16_000.0), x - x.mean(dim=0), atol=1e-11, rtol=0)
    assert not bool(centre_rows(torch.full((7, 2), -1234.567)).any())
    # (±a, and their mean): rounding must not give the mean a direction.
    line = torch.tensor([[0.1, 0.2], [0.3, 0.9], [0.2, 0.55]], dtype=torch.float64)
    assert centre_rows(line)[2].tolist() == [0.0, 0.0]


def labels_of(n, c, seed=0):
    labels = torch.randint(0, c, (n,), generator=seeded(seed))
    labels[:2] = torch.tensor([0, c - 1])
    return labels


def double_loop(x, labels):
    """The definition, row by row, distances from differences."""
    values = []
    for i in range(len(x)):
        distance_N = (x - x[i]).norm(dim=1)
        own = labels == labels[i]
        if own.sum() == 1:
            values.append(0.0)
            continue
        a = float(distance_N[own].sum() / (own.sum() - 1))
        b = min(float(distance_N[labels == c].mean()) for c in labels.unique() if c != labels[i])
        values.append((b - a) / max(a, b) if max(a, b) > 0 else 0.0)
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "d", "c"), [(3, 1, 2), (20, 3, 2), (50, 100, 4), (300, 6, 3), (40, 5, 39), (500, 64, 8)]
)
def test_equals_scikit_learn(n, d, c):
    x, labels = cloud(n, d, seed=n, mean=1.0), labels_of(n, c)
    expected = torch.from_numpy(silhouette_samples(x.numpy(), labels.numpy()))
    torch.testing.assert_close(silhouette_values(x, labels), expected, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """The most bytes that a tensor made under it has."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.bytes = max(self.bytes, made.nbytes)
        return made


@pytest.mark.parametrize("n_distinct", [2, 9, 100, 512])
def test_near_pairs_take_no_more_than_a_block(n_distinct, monkeypatch):
    n = 512
    place = (torch.arange(n) % (n_distinct + 6)).clamp_max(n_distinct - 1)  # many are the last one
    x, labels = cloud(n_distinct, 8, seed=8)[place], labels_of(n, 3)
    monkeypatch.setattr(silhouette, "BLOCK_ENTRIES", 32 * n)
    with Largest() as largest:
        found = silhouette_values(x, labels)
    assert largest.bytes <= 8 * 32 * n
    torch.testing.assert_close(found, double_loop(x, labels), rtol=0, atol=1e-12)


def test_tight_clusters_far_apart_keep_their_digits():
    # Two classes 1e-6 wide, mixed, at one end; a third 1e3 away: products lose such distances.
    near, far = cloud(30, 6, seed=2) * 1e-6, cloud(10, 6, seed=3) * 1e-6 + 1e3
    x = torch.cat([near, far])
    labels = torch.cat([torch.arange(30) % 2, torch.full((10,), 2)])
    x = x.float().double()  # the rows themselves are exact; differences of the far ones are not 0
    torch.testing.assert_close(
        silhouette_values(x, labels), double_loop(x, labels), rtol=0, atol=1e-8
    )


def test_duplicates_and_equal_rows():
    x = cloud(6, 3, seed=5).repeat(5, 1)
    by_point = torch.arange(6).repeat(5)
    assert silhouette_values(x, by_point).tolist() == [1.0] * 30  # no distance inside, some outside
    mixed = labels_of(30, 4)
    torch.testing.assert_close(
        silhouette_values(x, mixed), double_loop(x, mixed), rtol=0, atol=1e-12
    )
    equal = torch.full((9, 4), -16_000.3, dtype=torch.float64)
    assert silhouette_values(equal, torch.arange(9) % 2).tolist() == [0.0] * 9
