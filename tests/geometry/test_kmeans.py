"""K-means, also of directions, against scikit-learn and slow loops. N, D, K clusters."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans as SklearnKMeans

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.kmeans import (
    kmeans,
    nearest_direction,
    spherical_kmeans,
)
from tests import clouds
from tests.clouds import blobs, light, seeded

normal = partial(clouds.normal, mean=0.0)


def inertia(x, centroid, assignment):
    return float((x.double() - centroid.double()[assignment]).square().sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n", "d", "k"), [(120, 2, 3), (300, 16, 5), (90, 40, 4)])
def test_equals_scikit_learn_from_the_same_start(n, d, k, seed):
    x = normal(n, d, seed=seed)
    init = x[torch.randperm(n, generator=seeded(seed + 100))[:k]]
    ours = kmeans(x, k, init=init, n_iterations=500)
    theirs = SklearnKMeans(k, init=init.numpy(), n_init=1, max_iter=500, tol=0.0)
    theirs.fit(x.numpy())
    assert inertia(x, ours.centroid_KD, ours.assignment_N) == pytest.approx(theirs.inertia_, 1e-10)
    assert np.array_equal(ours.assignment_N.numpy(), theirs.labels_)
    np.testing.assert_allclose(ours.centroid_KD.numpy(), theirs.cluster_centers_, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_plus_plus_start_is_near_scikit_learns_best_of_ten(seed):
    x, _ = blobs(400, 8, 4, seed)
    best = min(
        inertia(x, found.centroid_KD, found.assignment_N)
        for found in (kmeans(x, 4, generator=seeded(s)) for s in range(10))
    )
    theirs = SklearnKMeans(4, n_init=10, random_state=seed).fit(x.numpy()).inertia_
    assert best <= theirs * 1.001


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9), st.integers(0, 10_000))
@light
def test_result_is_consistent_for_any_shape(n, d, k, seed):
    x = normal(n, d, seed=seed)
    found = kmeans(x, k, generator=seeded(seed), n_iterations=200)
    distance_NK = torch.cdist(x, found.centroid_KD)
    own_N = distance_NK.gather(1, found.assignment_N[:, None])[:, 0]
    assert bool((own_N <= distance_NK.min(dim=1).values + 1e-9).all())
    assert found.count_K.tolist() == [int((found.assignment_N == c).sum()) for c in range(k)]
    for c in range(k):  # converged: a filled cluster's centroid is its mean
        if found.count_K[c] > 0:
            mean_D = x[found.assignment_N == c].mean(dim=0)
            torch.testing.assert_close(found.centroid_KD[c], mean_D, atol=1e-9, rtol=0)
    assert bool(torch.isfinite(found.centroid_KD).all())


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_a_far_off_mean_in_float32_equals_float64(mean):
    x = blobs(300, 16, 4, seed=7)[0].float() + mean
    init = x[[0, 1, 2, 3]]
    single = kmeans(x, 4, init=init, n_iterations=50)
    double = kmeans(x.double(), 4, init=init.double(), n_iterations=50)
    assert torch.equal(single.assignment_N, double.assignment_N)
    torch.testing.assert_close(
        single.centroid_KD.double(), double.centroid_KD, atol=mean * 3e-7, rtol=0
    )


def cosine(row, other):
    length = math.sqrt(sum(a * a for a in row)) * math.sqrt(sum(b * b for b in other))
    return sum(a * b for a, b in zip(row, other, strict=True)) / length if length else 0.0


def by_loops(rows, centroids, n_iterations):
    """Assignments and centroids, row by row; the mean direction of each cluster."""

    def owners():
        return [max(range(len(centroids)), key=lambda c: cosine(r, centroids[c])) for r in rows]

    owner = owners()
    for _ in range(n_iterations):
        for c in range(len(centroids)):
            members = [r for r, own in zip(rows, owner, strict=True) if own == c and any(r)]
            if members:
                units = [[a / math.hypot(*r) for a in r] for r in members]
                total = [sum(column) for column in zip(*units, strict=True)]
                direction = [a / math.hypot(*total) for a in total]
                centroids = [*centroids[:c], direction, *centroids[c + 1 :]]
        owner = owners()
    return owner, centroids


@pytest.mark.parametrize("n_iterations", [0, 1, 2, 50])
@pytest.mark.parametrize(("n", "d", "k"), [(60, 3, 4), (40, 2, 3), (12, 30, 5), (30, 1, 2)])
def test_equals_slow_loops_from_the_same_start(n, d, k, n_iterations):
    x = normal(n, d, seed=n) * (1.0 + torch.arange(n)[:, None])
    x[3] = 0.0
    init = normal(k, d, seed=1)
    owner, centroids = by_loops(x.tolist(), unit_rows(init).tolist(), n_iterations)
    found = spherical_kmeans(x, k, init=3.0 * init, n_iterations=n_iterations)
    assert found.assignment_N.tolist() == owner
    torch.testing.assert_close(
        found.centroid_KD, torch.tensor(centroids, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert found.count_K.tolist() == [owner.count(c) for c in range(k)]


def test_a_zero_row_goes_to_cluster_0_and_moves_no_centroid():
    x = normal(30, 3, seed=5)
    plain = spherical_kmeans(x, 4, init=x[:4])
    zero_MD = torch.zeros(7, 3, dtype=torch.float64)
    found = spherical_kmeans(torch.cat([zero_MD, x]), 4, init=x[:4])
    torch.testing.assert_close(found.centroid_KD, plain.centroid_KD, rtol=0, atol=1e-12)
    assert found.assignment_N.tolist() == [0] * 7 + plain.assignment_N.tolist()
    assert (found.count_K - plain.count_K).tolist() == [7, 0, 0, 0]


@pytest.mark.parametrize("seed", range(8))
def test_a_zero_row_is_never_drawn_as_a_centroid(seed):
    x = torch.cat([torch.zeros(50, 3), torch.eye(3)])
    found = spherical_kmeans(x, 3, generator=seeded(seed), n_iterations=0)
    assert found.centroid_KD.sort(dim=0).values.tolist() == torch.eye(3).sort(dim=0).values.tolist()
    assert found.count_K.tolist() == [51, 1, 1]


@pytest.mark.parametrize("k", [1, 3])
def test_only_zero_rows(k):
    found = spherical_kmeans(torch.zeros(4, 2), k, generator=seeded(0))
    assert found.assignment_N.tolist() == [0] * 4
    assert found.count_K.tolist() == [4] + [0] * (k - 1)
    assert not found.centroid_KD.any()
    kept = spherical_kmeans(torch.zeros(4, 2), 2, init=torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    assert kept.centroid_KD.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_a_cluster_that_cancels_keeps_its_centroid():
    x = torch.tensor([[1.0, 0.0, 0.1], [-1.0, 0.0, -0.1], [0.0, -1.0, 0.0]])
    init = torch.tensor([[0.0, 5.0, 0.0], [0.0, -2.0, 0.0]])
    found = spherical_kmeans(x, 2, init=init)
    assert found.centroid_KD.tolist() == [[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]
    assert found.assignment_N.tolist() == [0, 0, 1]


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_a_narrow_cone_in_float32_equals_float64(mean):
    x = normal(300, 64, seed=9, dtype=torch.float32)
    x[:, 0] += mean
    init = x[:5] + normal(5, 64, seed=10, dtype=torch.float32)
    single = nearest_direction(x, unit_rows(init))
    assert torch.equal(single, nearest_direction(x.double(), unit_rows(init).double()))
    assert len(single.unique()) == 5
