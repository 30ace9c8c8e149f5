"""K-means against scikit-learn and slow loops. N rows, D dimensions, K clusters."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans as SklearnKMeans

from isotrain.geometry.kmeans import cluster_means, kmeans, nearest_centroid

light = settings(max_examples=25)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def blobs(n, d, k, seed=0, spread=0.5, dtype=torch.float64):
    generator = seeded(seed)
    centre_KD = 5.0 * torch.randn(k, d, generator=generator, dtype=dtype)
    owner_N = torch.randint(0, k, (n,), generator=generator)
    return centre_KD[owner_N] + spread * torch.randn(n, d, generator=generator, dtype=dtype)


def inertia(x, centroid, assignment):
    return float((x.double() - centroid.double()[assignment]).square().sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n", "d", "k"), [(120, 2, 3), (300, 16, 5), (90, 40, 4)])
def test_equals_scikit_learn_from_the_same_start(n, d, k, seed):
    x = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
    init = x[torch.randperm(n, generator=seeded(seed + 100))[:k]]
    ours = kmeans(x, k, init=init, n_iterations=500)
    theirs = SklearnKMeans(k, init=init.numpy(), n_init=1, max_iter=500, tol=0.0)
    theirs.fit(x.numpy())
    assert inertia(x, ours.centroid_KD, ours.assignment_N) == pytest.approx(theirs.inertia_, 1e-10)
    assert np.array_equal(ours.assignment_N.numpy(), theirs.labels_)
    np.testing.assert_allclose(ours.centroid_KD.numpy(), theirs.cluster_centers_, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_plus_plus_start_is_near_scikit_learns_best_of_ten(seed):
    x = blobs(400, 8, 4, seed=seed, spread=1.0)
    best = min(
        inertia(x, found.centroid_KD, found.assignment_N)
        for found in (kmeans(x, 4, generator=seeded(s)) for s in range(10))
    )
    theirs = SklearnKMeans(4, n_init=10, random_state=seed).fit(x.numpy()).inertia_
    assert best <= theirs * 1.001


def test_finds_separated_blobs():
    x = torch.cat([torch.zeros(20, 3), torch.full((30, 3), 50.0)])
    x = x + torch.randn(50, 3, generator=seeded(1))
    found = kmeans(x, 2, generator=seeded(0))
    assert sorted(found.count_K.tolist()) == [20, 30]
    assert len(found.assignment_N[:20].unique()) == 1 == len(found.assignment_N[20:].unique())


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9), st.integers(0, 10_000))
@light
def test_result_is_consistent_for_any_shape(n, d, k, seed):
    x = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
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


def test_the_assignment_belongs_to_the_centroids_before_convergence():
    x = torch.randn(500, 4, generator=seeded(2), dtype=torch.float64)
    for n_iterations in (1, 2, 3):
        found = kmeans(x, 7, init=x[:7], n_iterations=n_iterations)
        nearest_N = torch.cdist(x, found.centroid_KD).argmin(dim=1)
        assert torch.equal(nearest_N, found.assignment_N)


def test_inertia_never_rises_with_more_iterations():
    x = torch.randn(400, 6, generator=seeded(3), dtype=torch.float64)
    values = []
    for n_iterations in range(1, 12):
        found = kmeans(x, 6, init=x[:6], n_iterations=n_iterations)
        values.append(inertia(x, found.centroid_KD, found.assignment_N))
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))


def test_an_empty_cluster_keeps_its_centroid():
    x = torch.randn(30, 2, generator=seeded(4), dtype=torch.float64)
    init = torch.tensor([[0.0, 0.0], [500.0, -300.0]], dtype=torch.float64)
    found = kmeans(x, 2, init=init)
    assert found.count_K.tolist() == [30, 0]
    torch.testing.assert_close(found.centroid_KD[1], init[1])
    torch.testing.assert_close(found.centroid_KD[0], x.mean(dim=0))


def test_fewer_rows_than_clusters_leaves_the_rest_empty():
    x = torch.randn(3, 5, generator=seeded(5))
    found = kmeans(x, 8, generator=seeded(0))
    assert int((found.count_K > 0).sum()) == 3
    assert inertia(x, found.centroid_KD, found.assignment_N) == pytest.approx(0.0, abs=1e-9)
    assert bool(torch.isfinite(found.centroid_KD).all())


def test_duplicates_and_equal_rows():
    x = torch.tensor([[1.0, 2.0], [-3.0, 4.0]]).repeat(10, 1)
    found = kmeans(x, 2, generator=seeded(0))
    assert found.count_K.tolist() == [10, 10]
    same = kmeans(torch.full((12, 3), 0.1), 4, generator=seeded(0))
    assert int((same.count_K > 0).sum()) == 1
    torch.testing.assert_close(same.centroid_KD, torch.full((4, 3), 0.1))


def test_one_cluster_is_the_mean_and_needs_no_start():
    x = torch.randn(50, 7, generator=seeded(6))
    found = kmeans(x, 1)
    torch.testing.assert_close(found.centroid_KD[0], x.mean(dim=0))
    assert found.count_K.tolist() == [50]
    assert found.assignment_N.unique().tolist() == [0]


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_a_far_off_mean_in_float32_equals_float64(mean):
    x = blobs(300, 16, 4, seed=7, spread=1.0, dtype=torch.float32) + mean
    init = x[[0, 1, 2, 3]]
    single = kmeans(x, 4, init=init, n_iterations=50)
    double = kmeans(x.double(), 4, init=init.double(), n_iterations=50)
    assert torch.equal(single.assignment_N, double.assignment_N)
    torch.testing.assert_close(
        single.centroid_KD.double(), double.centroid_KD, atol=mean * 3e-7, rtol=0
    )


def test_never_reads_the_global_random_state():
    x = torch.randn(60, 3, generator=seeded(8))
    before = torch.random.get_rng_state()
    kmeans(x, 5, generator=seeded(0))
    kmeans(torch.zeros(9, 3), 5, generator=seeded(0))
    assert torch.equal(before, torch.random.get_rng_state())


def test_same_generator_same_result_and_other_seed_other_start():
    x = torch.randn(200, 3, generator=seeded(9))
    one, two = kmeans(x, 6, generator=seeded(1)), kmeans(x, 6, generator=seeded(1))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    other = kmeans(x, 6, generator=seeded(2), n_iterations=1)
    assert not torch.equal(one.centroid_KD, other.centroid_KD)


def test_carries_no_gradient_and_leaves_its_input():
    x = torch.randn(20, 3, generator=seeded(10), requires_grad=True)
    kept = x.detach().clone()
    found = kmeans(x, 2, generator=seeded(0))
    assert not found.centroid_KD.requires_grad
    assert torch.equal(kept, x.detach())


@pytest.mark.parametrize(
    ("x", "options", "words"),
    [
        (torch.zeros(0, 3), {"n_clusters": 1}, "N > 0"),
        (torch.zeros(3), {"n_clusters": 1}, r"\[N, D\]"),
        (torch.zeros(2, 3, 4), {"n_clusters": 1}, r"\[N, D\]"),
        (torch.zeros(3, 2), {"n_clusters": 0}, "n_clusters"),
        (torch.zeros(3, 2), {"n_clusters": 2, "init": torch.zeros(2, 3)}, "init"),
        (torch.zeros(3, 2), {"n_clusters": 2}, "generator"),
    ],
)
def test_errors_name_what_is_wrong(x, options, words):
    with pytest.raises(ValueError, match=words):
        kmeans(x, **options)


def test_nearest_centroid_equals_a_double_loop():
    x = torch.randn(40, 5, generator=seeded(11), dtype=torch.float64) + 100.0
    centroid_KD = torch.randn(6, 5, generator=seeded(12), dtype=torch.float64) + 100.0
    expected = [min(range(6), key=lambda c: float((row - centroid_KD[c]).norm())) for row in x]
    assert nearest_centroid(x, centroid_KD).tolist() == expected


@pytest.mark.parametrize("width", [3, 64, 768])
@pytest.mark.parametrize("k", [2, 5, 9, 17])
def test_the_lower_index_wins_a_tie_for_any_number_of_rows(width, k):
    centroid_KD = torch.randn(k, width, generator=seeded(13))
    centroid_KD[1:] += 20.0  # rows lie near the first centroid, and near its copy at the end
    centroid_KD[k - 1] = centroid_KD[0]
    x = centroid_KD[0] + 0.1 * torch.randn(64, width, generator=seeded(14))
    for n in (1, 2, 3, 7, 64):
        assert nearest_centroid(x[:n], centroid_KD).tolist() == [0] * n


def test_cluster_means_equal_a_loop_and_carry_a_gradient():
    x = torch.randn(11, 3, generator=seeded(15), dtype=torch.float64, requires_grad=True)
    owner_N = torch.tensor([0, 0, 2, 2, 2, 0, 4, 4, 0, 2, 2])
    mean_KD, count_K = cluster_means(x, owner_N, 5)
    assert count_K.tolist() == [4, 0, 5, 0, 2]
    for c in range(5):
        rows = x[owner_N == c]
        expected = rows.mean(dim=0) if len(rows) else torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(mean_KD[c], expected)
    assert torch.autograd.gradcheck(lambda rows: cluster_means(rows, owner_N, 5)[0], x)
