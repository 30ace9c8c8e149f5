"""ClusterPCA against NumPy and scikit-learn, closed forms of its gradient, and its contract.

N rows, D width, K clusters, R directions, M queue.
"""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from isotrain.geometry.kmeans import kmeans, nearest_centroid
from isotrain.transforms.cluster_pca import (
    ClusterPCA,
    apply_cluster_pca,
)
from tests.cluster_parts import fit_with, layer_with

light = settings(max_examples=25)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def cloud(n, d, seed=0, mean=0.0, dtype=torch.float64):
    """Rows with a falling spectrum, so that leading directions are well separated."""
    scale_D = 3.0 * 0.8 ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64) * scale_D
    rotation, _ = torch.linalg.qr(
        torch.randn(d, d, generator=seeded(seed + 1000), dtype=torch.float64)
    )
    return (x @ rotation + mean).to(dtype)


def blobs(n, d, k, seed=0, dtype=torch.float64):
    centre_KD = 8.0 * torch.randn(k, d, generator=seeded(seed + 500), dtype=torch.float64)
    owner_N = torch.arange(n) % k
    return (centre_KD[owner_N] + cloud(n, d, seed)).to(dtype)


def all_but_the_top(x, r):
    """Mu and Viswanath 2018 with NumPy's SVD."""
    points = x.double().numpy()
    centred = points - points.mean(axis=0)
    top = np.linalg.svd(centred, full_matrices=False)[2][:r]
    return torch.from_numpy(centred - centred @ top.T @ top)


def per_cluster_reference(x, owner_N, r, rho):
    """Rajaee and Pilehvar 2021: PCA in every cluster, with the stated cap."""
    points, owner = x.double().numpy(), owner_N.numpy()
    out = np.empty_like(points)
    for c in np.unique(owner):
        rows = points[owner == c]
        k = min(r, math.floor(rho * (len(rows) - 1)))
        model = PCA(n_components=max(k, 1), svd_solver="full").fit(rows)
        top = model.components_[:k]
        centred = rows - model.mean_
        out[owner == c] = centred - centred @ top.T @ top
    return torch.from_numpy(out)


def n_removed(stats_or_layer):
    return [int(d.square().sum().round()) for d in stats_or_layer.direction_KDR]


def states_equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def snapshot(layer):
    return {name: value.clone() for name, value in layer.state_dict().items()}


def fitted(x, **options):
    # a queue that takes all rows in one push
    layer = layer_with(x.shape[1], **{"queue_rows": 8 * max(2, len(x)), **options}).to(x.dtype)
    layer.observe(x)
    layer.fit()
    return layer.eval()


# --- values -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(4, 6), (50, 8), (32, 64)])
def test_one_cluster_without_directions_subtracts_the_mean(n, d):
    x = cloud(n, d, mean=7.0)
    y = ClusterPCA(d, n_clusters=1, n_components=0, stats="batch")(x)
    torch.testing.assert_close(y, x - x.mean(dim=0), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("n", "d"), [(32, 64), (64, 8), (200, 32)])
@pytest.mark.parametrize("r", [1, 2, 5])
def test_one_cluster_is_all_but_the_top(n, d, r):
    x = cloud(n, d, seed=n, mean=-3.0)
    y = ClusterPCA(d, n_clusters=1, n_components=r, stats="batch")(x)
    torch.testing.assert_close(y, all_but_the_top(x, r), atol=1e-9, rtol=0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "d", "k", "r"), [(120, 16, 4, 2), (300, 40, 4, 2), (90, 8, 3, 1)])
def test_clusters_equal_scikit_learns_pca_on_the_same_assignment(n, d, k, r, seed):
    x = blobs(n, d, k, seed=seed)
    layer = ClusterPCA(d, n_clusters=k, n_components=r, stats="batch", seed=seed)
    found = kmeans(x, k, generator=seeded(seed), n_iterations=3)
    assert int(found.count_K.min()) >= 9
    expected = per_cluster_reference(x, found.assignment_N, r, rho=0.25)
    torch.testing.assert_close(layer(x), expected, atol=1e-8, rtol=0)
    assert layer.counters["directions_removed"].item() == pytest.approx(k * r)


def test_overlapping_clusters_equal_the_reference_too():
    x = cloud(400, 12, seed=5)
    found = kmeans(x, 4, generator=seeded(0), n_iterations=3)
    expected = per_cluster_reference(x, found.assignment_N, 2, rho=0.25)
    y = ClusterPCA(12, n_clusters=4, n_components=2, stats="batch")(x)
    torch.testing.assert_close(y, expected, atol=1e-8, rtol=0)


def test_removed_directions_are_gone_and_others_untouched():
    x = cloud(64, 10, seed=6)
    layer = ClusterPCA(10, n_clusters=1, n_components=3, stats="batch")
    y = layer(x)
    centred = x - x.mean(dim=0)
    axes = torch.from_numpy(np.linalg.svd(centred.numpy(), full_matrices=False)[2].copy())
    assert float((y @ axes[:3].T).abs().max()) < 1e-10
    torch.testing.assert_close(y @ axes[3:].T, centred @ axes[3:].T, atol=1e-10, rtol=0)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e4])
def test_float32_is_close_to_float64_with_a_large_mean(mean):
    x = cloud(256, 64, seed=7, mean=mean, dtype=torch.float32)
    layer = ClusterPCA(64, n_clusters=1, n_components=2, stats="batch")
    error = (layer(x).double() - layer(x.double())).abs().max().item()
    assert error < 2e-6 * max(mean, 30.0)
    assert float(layer(x).mean(dim=0).abs().max()) < 1e-6 * max(mean, 30.0)


# --- caps, borrowing, pass-through ----------------------------------------------------------


@pytest.mark.parametrize("rho", [0.1, 0.25, 0.5, 0.75])
def test_a_cluster_loses_at_most_floor_rho_n_minus_one(rho):
    for n in (4, 5, 8, 9, 13, 32, 33):
        x = cloud(n, 48, seed=n)
        stats = fit_with(x, 1, 12, rho=rho)
        assert n_removed(stats) == [min(12, math.floor(rho * (n - 1)))], n


@pytest.mark.parametrize(("rho", "n", "expected"), [(0.7, 91, 63), (0.29, 101, 29)])
def test_the_cap_is_not_a_victim_of_binary_fractions(rho, n, expected):
    x = torch.randn(n, 128, generator=seeded(n), dtype=torch.float64)
    stats = fit_with(x, 1, 80, rho=rho)
    # 0.7 · 90 = 63 and 0.29 · 100 = 29, though the float products fall just below.
    assert n_removed(stats) == [expected]


def test_each_cluster_has_its_own_cap():
    big, small = cloud(40, 16, seed=1), cloud(9, 16, seed=2) + 200.0
    init = torch.stack([big.mean(dim=0), small.mean(dim=0)])
    stats = fit_with(torch.cat([big, small]), 2, 5, init=init)
    assert n_removed(stats) == [5, 2]


def test_a_small_cluster_borrows_the_mean_and_directions_of_all_rows():
    big, small = cloud(60, 12, seed=3), cloud(3, 12, seed=4) + 50.0
    x = torch.cat([big, small])
    init = torch.stack([big.mean(dim=0), small.mean(dim=0)])
    stats = fit_with(x, 2, 2, init=init)
    y = apply_cluster_pca(x, stats)
    torch.testing.assert_close(y[60:], all_but_the_top(x, 2)[60:], atol=1e-9, rtol=0)
    torch.testing.assert_close(y[:60], all_but_the_top(big, 2), atol=1e-9, rtol=0)
    assert stats.counters["rows_borrowed"].item() == 3
    assert stats.counters["clusters_empty"].item() == 0
    assert stats.counters["rows_passed_through"].item() == 0
    own = fit_with(x, 2, 2, init=init, min_rows=3)
    assert own.counters["rows_borrowed"].item() == 0
    torch.testing.assert_close(own.centre_KD[1], small.mean(dim=0), atol=1e-9, rtol=0)


@pytest.mark.parametrize("n", [8, 40, 1000, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cluster_of_equal_rows_borrows(n, dtype):
    spread = cloud(40, 24, seed=5, dtype=dtype)
    equal = (cloud(1, 24, seed=6, dtype=dtype) + 12.3).repeat(n, 1)
    x = torch.cat([spread, equal])
    init = torch.stack([spread.mean(dim=0), equal[0]])
    stats = fit_with(x, 2, 2, init=init)
    assert stats.counters["rows_borrowed"].item() == n
    torch.testing.assert_close(stats.centre_KD[1], x.mean(dim=0), atol=1e-4, rtol=0)
    assert float(apply_cluster_pca(x, stats)[40:].abs().max()) > 0.0


def test_an_empty_cluster_is_counted_and_borrows():
    x = cloud(20, 4, seed=7)
    init = torch.stack([x.mean(dim=0), x.mean(dim=0) + 1e3])
    stats = fit_with(x, 2, 1, init=init)
    assert stats.counters["clusters_empty"].item() == 1
    torch.testing.assert_close(stats.centre_KD[1], x.mean(dim=0))


@pytest.mark.parametrize("k", [1, 4])
def test_equal_rows_pass_through_unchanged_and_counted(k):
    for n in (1, 2, 7, 32, 1000, 8192):
        x = (cloud(1, 32, seed=8, mean=5.1, dtype=torch.float32)).repeat(n, 1)
        layer = ClusterPCA(32, n_clusters=k, n_components=2, stats="batch")
        assert torch.equal(layer(x), x), n
        assert layer.counters["rows_passed_through"].item() == n
        assert layer.counters["rows_borrowed"].item() == 0
        if k == 1:
            assert layer.counters["directions_removed"].item() == 0


def test_zero_rows_pass_through_and_no_rows_are_no_problem():
    layer = ClusterPCA(3, n_clusters=2, n_components=1, stats="batch")
    assert torch.equal(layer(torch.zeros(5, 3)), torch.zeros(5, 3))
    assert layer(torch.zeros(0, 3)).shape == (0, 3)
    layer.observe(torch.zeros(0, 3))
    assert len(layer.queue.rows()) == 0


@pytest.mark.parametrize("n", [2, 3, 5])
def test_fewer_rows_than_clusters_is_finite_and_counted(n):
    x = cloud(n, 6, seed=9)
    layer = ClusterPCA(6, n_clusters=8, n_components=2, stats="batch")
    y = layer(x)
    torch.testing.assert_close(y, x - x.mean(dim=0) if n < 5 else all_but_the_top(x, 1))
    assert layer.counters["clusters_empty"].item() == 8 - n
    assert layer.counters["rows_borrowed"].item() == n


@pytest.mark.parametrize("n", [1, 2, 3, 8, 32, 512])
@pytest.mark.parametrize(("k", "r"), [(1, 0), (1, 3), (8, 3)])
def test_no_nan_for_any_number_of_rows(n, k, r):
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        x = cloud(n, 24, seed=n, mean=2.0, dtype=dtype)
        layer = ClusterPCA(24, n_clusters=k, n_components=r, stats="batch")
        y = layer(x)
        assert y.dtype == dtype
        assert y.shape == x.shape
        assert bool(torch.isfinite(y).all()), dtype


@given(st.integers(1, 40), st.integers(2, 12), st.integers(1, 6), st.integers(0, 10_000))
@light
def test_rows_never_move_further_than_the_cloud_allows(n, d, k, seed):
    # Centring then projecting: no cluster's energy about the borrowed or own mean can rise.
    x = cloud(n, d, seed)
    stats = fit_with(x, k, min(2, d - 1), generator=seeded(seed))
    y = apply_cluster_pca(x, stats)
    assert bool(torch.isfinite(y).all())
    if stats.counters["rows_passed_through"] == 0:
        centred = x - stats.centre_KD[nearest_centroid(x, stats.anchor_KD)]
        assert bool((y.norm(dim=1) <= centred.norm(dim=1) * (1 + 1e-9) + 1e-12).all())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_low_rank_cloud_is_not_zeroed_silently(rank):
    left = torch.randn(32, rank, generator=seeded(10), dtype=torch.float64)
    x = left @ torch.randn(rank, 16, generator=seeded(11), dtype=torch.float64)
    layer = ClusterPCA(16, n_clusters=1, n_components=3, stats="batch")
    energy = float(layer(x).square().sum() / (x - x.mean(dim=0)).square().sum())
    counted = sum(v.item() for name, v in layer.counters.items() if "zero" in name)
    assert energy > 1e-12 or counted == 32


def test_near_duplicate_clusters_in_float32_stay_finite_and_close_to_double():
    centre = torch.randn(1, 32, generator=seeded(12)) * 10.0
    x = torch.cat([centre + 1e-3 * torch.randn(40, 32, generator=seeded(s)) for s in (1, 2)])
    x = torch.cat([x, x[:20] + 30.0])
    init = torch.stack([x[:40].mean(dim=0), x[40:80].mean(dim=0), x[80:].mean(dim=0)])
    stats = fit_with(x, 3, 1, init=init, n_iterations=1)
    y = apply_cluster_pca(x, stats)
    assert bool(torch.isfinite(y).all())
    assert float(y.abs().max()) < 0.1


# --- not-finite input -----------------------------------------------------------------------


def test_a_nan_row_never_reaches_its_batch_mates_in_frozen_evaluation():
    x = blobs(64, 8, 4, dtype=torch.float32)
    layer = fitted(x, n_clusters=4, n_components=2)
    expected = layer(x)
    broken = x.clone()
    broken[5, 0] = float("nan")
    broken[9] = float("inf")
    keep = torch.tensor([i not in (5, 9) for i in range(64)])
    assert torch.equal(layer(broken)[keep], expected[keep])


# --- dtype, autocast, state -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_cast_back(dtype):
    x = blobs(96, 16, 3, seed=1).to(dtype)
    layer = ClusterPCA(16, n_clusters=3, n_components=2, stats="batch")
    assert torch.equal(layer(x), layer(x.float()).to(dtype))
    frozen = fitted(x.float(), n_clusters=3, n_components=2)
    assert torch.equal(frozen(x), frozen(x.float()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_layer_moved_to_half_precision_still_trains_and_fits(dtype):
    # `model.to(bfloat16)` (Lightning's bf16-true) also moves the buffers.
    x = blobs(64, 8, 4, seed=3)
    layer = ClusterPCA(8, n_clusters=4, n_components=2).to(dtype)
    layer(x.to(dtype))
    layer.observe(x.to(dtype))
    layer(x.to(dtype))
    layer.fit()
    y = layer.eval()(x.to(dtype))
    assert y.dtype == dtype
    assert bool(torch.isfinite(y).all())


@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_autocast_changes_nothing(stats):
    x = blobs(128, 32, 4, seed=4, dtype=torch.float32)
    one = ClusterPCA(32, n_clusters=4, n_components=2, stats=stats)
    two = copy.deepcopy(one)
    for step in range(2):
        expected = one(x)
        one.observe(x)
        with torch.autocast("cpu", torch.bfloat16):
            found = two(x)
            two.observe(x)
        assert torch.equal(found, expected), f"step {step}"
        assert torch.equal(two.warm_KD, one.warm_KD), f"step {step}"
    one.fit()
    with torch.autocast("cpu", torch.bfloat16):
        two.fit()
        found = two.eval()(x)
    assert found.dtype == torch.float32
    assert torch.equal(found, one.eval()(x))


@pytest.mark.parametrize("stats", ["batch", "queue"])
@pytest.mark.parametrize("eval_stats", ["frozen", "batch"])
def test_forward_changes_no_state(stats, eval_stats):
    x = blobs(64, 8, 4, seed=5)
    layer = ClusterPCA(8, 4, 2, stats=stats, eval_stats=eval_stats).double()
    layer.observe(x)
    layer.fit()
    before, kept = snapshot(layer), x.clone()
    for mode in (True, False):
        layer.train(mode)
        first, second = layer(x), layer(x)
        assert torch.equal(first, second)
        layer(x[:7])
        assert torch.equal(layer(x), first)
    assert states_equal(before, layer.state_dict())
    assert torch.equal(x, kept)


def test_same_seed_same_result():
    x = cloud(80, 8, seed=7)
    runs = [ClusterPCA(8, 6, 1, stats="batch", seed=s)(x) for s in (3, 3, 4)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


# --- observe ----------------------------------------------------------------------------------


def test_queue_statistics_join_the_queue_and_the_batch():
    old, new = cloud(40, 6, seed=8), cloud(10, 6, seed=9, mean=1.0)
    layer = ClusterPCA(6, n_clusters=1, n_components=2).double()
    layer.observe(old)
    expected = all_but_the_top(torch.cat([old, new]), 2)[40:]
    torch.testing.assert_close(layer(new), expected, atol=1e-9, rtol=0)


def test_clusters_survive_a_jump_of_the_representation():
    # Rows jump by more than their spread once; afterwards the queue holds new rows only.
    centre_KD = 3.0 * torch.randn(8, 16, generator=seeded(15))
    layer = ClusterPCA(16, n_clusters=8, n_components=2, queue_rows=512)
    generator = seeded(16)
    for step in range(40):
        owner = torch.randint(0, 8, (64,), generator=generator)
        noise = 0.3 * torch.randn(64, 16, generator=generator)
        layer.observe(centre_KD[owner] + noise + (20.0 if step >= 10 else 0.0))
    layer.fit()
    count_K = torch.bincount(nearest_centroid(layer.queue.rows(), layer.anchor_KD), minlength=8)
    assert int((count_K > 0).sum()) >= 4, count_K.tolist()


# --- fit and frozen evaluation ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_frozen_row_does_not_depend_on_its_batch_mates(dtype):
    x = blobs(256, 64, 4, seed=10, dtype=dtype) + 20.0
    layer = fitted(x, n_clusters=4, n_components=3)
    y = layer(x)
    rms = float(y.square().mean().sqrt())
    for seed in range(3):  # same N, other mates: exactly equal
        other = torch.cat([x[:16], cloud(240, 64, seed=seed, mean=seed, dtype=dtype)])
        assert torch.equal(layer(other)[:16], y[:16])
    for n in (1, 2, 7, 33, 128):
        assert float((layer(x[:n]) - y[:n]).abs().max()) <= 1e-5 * rms


def test_frozen_evaluation_applies_the_fitted_statistics():
    x, new = blobs(200, 12, 4, seed=11), blobs(50, 12, 4, seed=12)
    layer = fitted(x, n_clusters=4, n_components=2)
    warm = layer.warm_KD
    stats = fit_with(x, 4, 2, init=warm, n_iterations=100)
    torch.testing.assert_close(layer(new), apply_cluster_pca(new, stats), atol=1e-12, rtol=0)


def test_fit_on_given_rows_equals_fit_on_a_queue_of_them():
    x = cloud(64, 8, seed=13)
    given_rows = ClusterPCA(8, 1, 2).double()
    given_rows.fit(x)
    torch.testing.assert_close(given_rows.eval()(x), fitted(x, n_clusters=1, n_components=2)(x))
    torch.testing.assert_close(given_rows(x), all_but_the_top(x, 2), atol=1e-9, rtol=0)


def test_observing_does_not_move_frozen_statistics_until_the_next_fit():
    x = cloud(64, 8, seed=14)
    layer = fitted(x, n_clusters=2, n_components=1)
    before = layer(x)
    layer.observe(cloud(64, 8, seed=15, mean=9.0))
    assert torch.equal(layer(x), before)
    layer.fit()
    assert not torch.equal(layer(x), before)


def test_buffers_have_fixed_shapes_from_the_constructor():
    layer = ClusterPCA(16, 4, 3, queue_rows=50)
    shapes = {name: value.shape for name, value in layer.state_dict().items()}
    for n in (3, 70):
        layer.observe(cloud(n, 16, seed=n, dtype=torch.float32))
    layer.fit()
    assert shapes == {name: value.shape for name, value in layer.state_dict().items()}


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_behave_like_the_original(clone):
    x = blobs(64, 8, 4, seed=17, dtype=torch.float32)
    layer = ClusterPCA(8, 4, 2)
    layer(x.requires_grad_())
    layer.observe(x)
    layer.fit()
    twin = clone(layer)
    assert torch.equal(twin(x), layer(x))
    assert torch.equal(twin.eval()(x), layer.eval()(x))
    twin.observe(x + 1.0)
    assert not states_equal(twin.state_dict(), layer.state_dict())


@pytest.mark.parametrize(("queue_rows", "step"), [(2048, 32), (300, 16), (46, 13), (400, 29)])
def test_fit_on_the_queue_uses_the_caps_of_a_training_batch(queue_rows, step):
    layer = ClusterPCA(24, 1, 12, stats="batch", queue_rows=queue_rows).double()
    x = cloud(queue_rows + step, 24, seed=18)
    for start in range(0, queue_rows, step):
        layer.observe(x[start : start + step])
    layer.fit()
    training = fit_with(x[:step], 1, 12)
    assert n_removed(layer) == n_removed(training) == [min(12, (step - 1) // 4)]


def test_batch_statistics_borrow_in_evaluation_as_in_training():
    # 4 blobs in batches of 12: 3 rows each, fewer than min_rows, so every cluster borrows.
    layer = ClusterPCA(8, 4, 2, stats="batch", queue_rows=240).double()
    x = blobs(240, 8, 4, seed=19)
    for part in x.split(12):
        layer(part)
        assert layer.counters["rows_borrowed"].item() == 12
        layer.observe(part)
    layer.fit()
    torch.testing.assert_close(layer.centre_KD, x.mean(dim=0).expand(4, 8))


def test_a_share_of_exactly_min_rows_does_not_borrow():
    # 49 equal shares of 4 rows: 49 · (4 / 49) falls just below 4 in floating point.
    stats = fit_with(cloud(49, 8, seed=20), 1, 2, effective_rows=4)
    assert stats.counters["rows_borrowed"].item() == 0


def test_queue_statistics_keep_the_full_cap():
    layer = ClusterPCA(32, 1, 12, stats="queue", queue_rows=256).double()
    for part in cloud(256, 32, seed=21).split(16):
        layer.observe(part)
    layer.fit()
    assert n_removed(layer) == [12]


# --- gradient ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "r"), [(32, 12, 2), (16, 40, 3), (9, 5, 0)])
def test_gradient_of_batch_statistics_is_the_closed_form(n, d, r):
    x = cloud(n, d, seed=23, mean=1.0).requires_grad_()
    upstream = torch.randn(n, d, generator=seeded(24), dtype=torch.float64)
    ClusterPCA(d, 1, r, stats="batch")(x).backward(upstream)
    rows = x.detach()
    axes = np.linalg.svd((rows - rows.mean(dim=0)).numpy(), full_matrices=False)[2][:r]
    keep = torch.eye(d, dtype=torch.float64) - torch.from_numpy(axes.T @ axes)
    centring = torch.eye(n, dtype=torch.float64) - 1.0 / n
    torch.testing.assert_close(x.grad, centring @ upstream @ keep, atol=1e-9, rtol=0)
    assert float(x.grad.norm()) <= float(upstream.norm()) + 1e-12


def test_gradient_with_clusters_is_the_closed_form_in_each():
    x = blobs(90, 10, 3, seed=25).requires_grad_()
    upstream = torch.randn(90, 10, generator=seeded(26), dtype=torch.float64)
    ClusterPCA(10, 3, 2, stats="batch")(x).backward(upstream)
    rows = x.detach()
    owner = kmeans(rows, 3, generator=seeded(0)).assignment_N
    for c in range(3):
        mine, g = rows[owner == c], upstream[owner == c]
        axes = np.linalg.svd((mine - mine.mean(dim=0)).numpy(), full_matrices=False)[2][:2]
        keep = torch.eye(10, dtype=torch.float64) - torch.from_numpy(axes.T @ axes)
        expected = (g - g.mean(dim=0)) @ keep
        torch.testing.assert_close(x.grad[owner == c], expected, atol=1e-9, rtol=0)


def test_gradient_with_a_queue_is_that_of_the_mean_of_the_batch():
    """An encoder is not rewarded for a shift that the queue will take away a few steps later."""
    old, x = cloud(30, 6, seed=27), cloud(10, 6, seed=28).requires_grad_()
    layer = ClusterPCA(6, 1, 0).double()
    layer.observe(old)
    upstream = torch.randn(10, 6, generator=seeded(29), dtype=torch.float64)
    layer(x).backward(upstream)
    expected = upstream - upstream.mean(dim=0)
    torch.testing.assert_close(x.grad, expected, atol=1e-12, rtol=0)


def test_frozen_gradient_is_the_projection():
    x = blobs(64, 8, 4, seed=30)
    layer = fitted(x, n_clusters=4, n_components=2)
    rows = x.clone().requires_grad_()
    upstream = torch.randn(64, 8, generator=seeded(31), dtype=torch.float64)
    layer(rows).backward(upstream)
    owner = nearest_centroid(x, layer.anchor_KD)
    for i in range(64):
        v_DR = layer.direction_KDR[owner[i]]
        expected = upstream[i] - v_DR @ (v_DR.T @ upstream[i])
        torch.testing.assert_close(rows.grad[i], expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("case", ["one_row", "equal_rows", "duplicates", "fewer_than_clusters"])
def test_gradient_is_finite_in_degenerate_clouds(case):
    x = {
        "one_row": cloud(1, 6),
        "equal_rows": cloud(1, 6).repeat(9, 1),
        "duplicates": cloud(4, 6).repeat(8, 1),
        "fewer_than_clusters": cloud(3, 6),
    }[case].requires_grad_()
    y = ClusterPCA(6, 4, 2, stats="batch")(x)
    y.square().sum().backward()
    assert bool(torch.isfinite(x.grad).all())
    if case in ("one_row", "equal_rows"):
        torch.testing.assert_close(x.grad, 2.0 * x.detach())


# --- constructor ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"n_clusters": 0}, "n_clusters must be at least 1"),
        ({"n_components": -1}, "n_components must be at least 0"),
        ({"n_components": 8}, "lower n_components"),
        ({"min_rows": 0}, "min_rows must be at least 1"),
        ({"queue_rows": 1}, "queue_rows must be at least 2"),
        ({"n_iterations": 0}, "n_iterations must be at least 1"),
        ({"rho": 0.0}, "rho must be above 0, got 0.0"),
        ({"rho": 1.1}, "rho must be at most 1, got 1.1"),
        ({"rho": float("nan")}, "rho must be above 0, got nan"),
        ({"stats": "running"}, "stats must be batch or queue or start, got 'running'"),
        ({"eval_stats": "queue"}, "eval_stats must be frozen or refit or batch, got 'queue'"),
    ],
)
def test_constructor_errors_name_the_option(options, words):
    with pytest.raises(ValueError, match=words):
        layer_with(**{"width": 8, **options})
