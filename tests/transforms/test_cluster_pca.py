"""ClusterPCA against NumPy and scikit-learn, its fallback to all embeddings, and its gradient.

N embeddings, D width, K clusters, R directions.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.kmeans import kmeans, nearest_centroid
from isotrain.transforms.cluster_pca import ClusterPCA
from tests.clouds import correlated as cloud
from tests.clouds import normal, seeded
from tests.cluster_parts import apply_to, by_scikit_learn, fit_with


def blobs(n, d, k, seed=0):
    centre_KD = normal(k, d, seed=seed + 500, mean=0.0) * 8.0
    return centre_KD[torch.arange(n) % k] + cloud(n, d, seed)


def top_of(x, r):
    """Leading directions `[D, R]` of centred embeddings."""
    centred = (x - x.mean(dim=0)).numpy()
    return torch.from_numpy(np.linalg.svd(centred, full_matrices=False)[2][:r].T.copy())


def all_but_the_top(x, r):
    """Mu and Viswanath 2018 with NumPy's SVD."""
    centred, top = x - x.mean(dim=0), top_of(x, r)
    return centred - centred @ top @ top.T


def n_removed(stats_or_layer):
    return [int(d.square().sum().round()) for d in stats_or_layer.direction_KDR]


def means(*clouds):
    return torch.stack([x.mean(dim=0) for x in clouds])


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(32, 64), (64, 8), (200, 32)])
@pytest.mark.parametrize("r", [0, 1, 5])
def test_one_cluster_is_all_but_the_top_and_its_gradient_the_closed_form(n, d, r):
    x, upstream = cloud(n, d, seed=n, mean=-3.0).requires_grad_(), normal(n, d, seed=24)
    y = ClusterPCA(d, n_clusters=1, n_components=r, stats="batch")(x)
    torch.testing.assert_close(y, all_but_the_top(x.detach(), r), atol=1e-9, rtol=0)
    y.backward(upstream)
    top = top_of(x.detach(), r)
    expected = (upstream - upstream.mean(dim=0)) @ (torch.eye(d) - top @ top.T)
    torch.testing.assert_close(x.grad, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("n", "d", "k", "r"), [(120, 16, 4, 2), (300, 40, 4, 2), (90, 8, 3, 1)])
@pytest.mark.parametrize("make", [blobs, lambda n, d, k, seed: cloud(4 * n, d, seed)])
def test_clusters_equal_scikit_learns_pca_on_the_same_assignment(make, n, d, k, r, seed):
    x = make(n, d, k, seed=seed)
    layer = ClusterPCA(d, n_clusters=k, n_components=r, stats="batch", seed=seed)
    found = kmeans(x, k, generator=seeded(seed), n_iterations=3)
    expected = by_scikit_learn(x, found.assignment_N, r, rho=0.25)
    torch.testing.assert_close(layer(x), expected, atol=1e-8, rtol=0)
    assert layer.counters["directions_removed"].item() == pytest.approx(k * r)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e4])
def test_float32_is_close_to_float64_with_a_large_mean(mean):
    x = cloud(256, 64, seed=7, mean=mean, dtype=torch.float32)
    layer = ClusterPCA(64, n_clusters=1, n_components=2, stats="batch")
    error = (layer(x).double() - layer(x.double())).abs().max().item()
    assert error < 2e-6 * max(mean, 30.0)


def test_the_seed_decides_the_clusters():
    x = cloud(80, 8, seed=7)
    runs = [ClusterPCA(8, 6, 1, stats="batch", seed=s)(x) for s in (3, 3, 4)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


# --- caps, and the fallback to the statistics of all embeddings ---------------------------------


@pytest.mark.parametrize("rho", [0.1, 0.25, 0.75])
def test_a_cluster_loses_at_most_floor_rho_n_minus_one(rho):
    for n in (4, 5, 9, 13, 33):
        stats = fit_with(cloud(n, 48, seed=n), 1, 12, rho=rho)
        assert n_removed(stats) == [min(12, math.floor(rho * (n - 1)))], n
    big, small = cloud(40, 16, seed=1), cloud(9, 16, seed=2) + 200.0
    stats = fit_with(torch.cat([big, small]), 2, 5, init=means(big, small), rho=rho)
    assert n_removed(stats) == [min(5, math.floor(rho * (n - 1))) for n in (40, 9)]


def test_a_small_cluster_takes_the_mean_and_directions_of_all_embeddings():
    big, small = cloud(60, 12, seed=3), cloud(3, 12, seed=4) + 50.0
    x = torch.cat([big, small])
    stats = fit_with(x, 2, 2, init=means(big, small))
    y = apply_to(x, stats)
    torch.testing.assert_close(y[60:], all_but_the_top(x, 2)[60:], atol=1e-9, rtol=0)
    torch.testing.assert_close(y[:60], all_but_the_top(big, 2), atol=1e-9, rtol=0)
    names = ("rows_borrowed", "clusters_empty", "rows_passed_through")
    assert [stats.counters[name].item() for name in names] == [3, 0, 0]
    small = cloud(4, 12, seed=4) + 50.0  # one more is enough
    own = fit_with(torch.cat([big, small]), 2, 2, init=means(big, small))
    assert own.counters["rows_borrowed"].item() == 0
    torch.testing.assert_close(own.centre_KD[1], small.mean(dim=0), atol=1e-9, rtol=0)


@pytest.mark.parametrize("n", [8, 40, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cluster_of_equal_embeddings_falls_back_too(n, dtype):
    spread = cloud(40, 24, seed=5, dtype=dtype)
    equal = (cloud(1, 24, seed=6, dtype=dtype) + 12.3).repeat(n, 1)
    x = torch.cat([spread, equal])
    stats = fit_with(x, 2, 2, init=means(spread, equal[:1]))
    assert stats.counters["rows_borrowed"].item() == n
    torch.testing.assert_close(stats.centre_KD[1], x.mean(dim=0), atol=1e-4, rtol=0)


def test_an_empty_cluster_is_counted_and_falls_back():
    x = cloud(20, 4, seed=7)
    stats = fit_with(x, 2, 1, init=means(x, x + 1e3))
    assert stats.counters["clusters_empty"].item() == 1
    torch.testing.assert_close(stats.centre_KD[1], x.mean(dim=0))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_fewer_embeddings_than_clusters_fall_back(n):
    x = cloud(n, 6, seed=9)
    layer = ClusterPCA(6, n_clusters=8, n_components=2, stats="batch")
    torch.testing.assert_close(layer(x), all_but_the_top(x, int(n == 5)))
    assert layer.counters["clusters_empty"].item() == 8 - n
    assert layer.counters["rows_borrowed"].item() == n


@given(st.integers(1, 40), st.integers(2, 12), st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=25)
def test_no_cluster_gains_energy_about_its_centre(n, d, k, seed):
    x = cloud(n, d, seed)
    stats = fit_with(x, k, min(2, d - 1), generator=seeded(seed))
    y = apply_to(x, stats)
    assert bool(torch.isfinite(y).all())
    if stats.counters["rows_passed_through"] == 0:
        centred = x - stats.centre_KD[nearest_centroid(x, stats.anchor_KD)]
        assert bool((y.norm(dim=1) <= centred.norm(dim=1) * (1 + 1e-9) + 1e-12).all())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_low_rank_cloud_is_not_zeroed(rank):
    x = normal(32, rank, seed=10, mean=0.0) @ normal(rank, 16, seed=11, mean=0.0)
    y = ClusterPCA(16, n_clusters=1, n_components=3, stats="batch")(x)
    assert float(y.square().sum() / (x - x.mean(dim=0)).square().sum()) > 1e-12


# --- the queue and frozen statistics ----------------------------------------------------------


def test_clusters_survive_a_jump_of_the_representation():
    """Embeddings jump by more than their spread once; then the queue holds new ones only."""
    centre_KD, generator = 3.0 * torch.randn(8, 16, generator=seeded(15)), seeded(16)
    layer = ClusterPCA(16, n_clusters=8, n_components=2, queue_rows=512)
    for step in range(40):
        owner = torch.randint(0, 8, (64,), generator=generator)
        noise = 0.3 * torch.randn(64, 16, generator=generator)
        layer.observe(centre_KD[owner] + noise + (20.0 if step >= 10 else 0.0))
    layer.fit()
    count_K = torch.bincount(nearest_centroid(layer.queue.rows(), layer.anchor_KD), minlength=8)
    assert int((count_K > 0).sum()) >= 4, count_K.tolist()


def test_the_gradient_of_frozen_evaluation_is_the_projection_of_each_cluster():
    x, upstream = blobs(200, 12, 4, seed=11), normal(50, 12, seed=31)
    new = blobs(50, 12, 4, seed=12).requires_grad_()
    layer = ClusterPCA(12, 4, 2, queue_rows=1600).double()
    layer.observe(x)
    layer.fit()
    layer.eval()(new).backward(upstream)
    owner = nearest_centroid(new.detach(), layer.anchor_KD)
    for i in range(50):
        v_DR = layer.direction_KDR[owner[i]]
        expected = upstream[i] - v_DR @ (v_DR.T @ upstream[i])
        torch.testing.assert_close(new.grad[i], expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("queue_rows", "step"), [(2048, 32), (300, 16), (46, 13), (400, 29)])
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_frozen_statistics_of_batches_have_the_caps_of_a_batch(queue_rows, step, stats):
    layer = ClusterPCA(24, 1, 12, stats=stats, queue_rows=queue_rows).double()
    x = cloud(queue_rows + step, 24, seed=18)
    for start in range(0, queue_rows, step):
        layer.observe(x[start : start + step])
    layer.fit()
    n = step if stats == "batch" else len(layer.queue.rows())
    assert n_removed(layer) == [min(12, (n - 1) // 4)]


def test_statistics_of_batches_fall_back_in_evaluation_as_in_training():
    """4 blobs in batches of 12: 3 embeddings each, fewer than MIN_ROWS."""
    layer = ClusterPCA(8, 4, 2, stats="batch", queue_rows=240).double()
    x = blobs(240, 8, 4, seed=19)
    for part in x.split(12):
        layer(part)
        assert layer.counters["rows_borrowed"].item() == 12
        layer.observe(part)
    layer.fit()
    torch.testing.assert_close(layer.centre_KD, x.mean(dim=0).expand(4, 8))
    # 49 equal shares of 4: 49 · (4 / 49) falls just below 4 in floating point
    stats = fit_with(cloud(49, 8, seed=20), 1, 2, effective_rows=4)
    assert stats.counters["rows_borrowed"].item() == 0


def test_the_gradient_with_clusters_is_the_closed_form_in_each():
    x, upstream = blobs(90, 10, 3, seed=25).requires_grad_(), normal(90, 10, seed=26)
    ClusterPCA(10, 3, 2, stats="batch")(x).backward(upstream)
    rows = x.detach()
    owner = kmeans(rows, 3, generator=seeded(0)).assignment_N
    for c in range(3):
        top, g = top_of(rows[owner == c], 2), upstream[owner == c]
        expected = (g - g.mean(dim=0)) @ (torch.eye(10) - top @ top.T)
        torch.testing.assert_close(x.grad[owner == c], expected, atol=1e-9, rtol=0)
