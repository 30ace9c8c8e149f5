"""K-means against scikit-learn. N, D, K clusters."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans as SklearnKMeans

from isotrain.geometry.kmeans import kmeans
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
