"""Options of ClusterPCA: warm-up, protected labels, random directions, gradients, what is kept.

N rows, D width, K clusters, R directions, M rows in the queue.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.config.compose import compose_run
from isotrain.geometry.cluster_pca import apply_cluster_pca
from isotrain.geometry.cluster_removal import Removal
from isotrain.geometry.levels import rms_distance
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.zca import ZCA
from tests.cluster_parts import fit_with, layer_with
from tests.judge import all_mistakes

light = settings(max_examples=12)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def cloud(n=60, d=6, seed=0, dtype=torch.float64):
    """Two far blobs with falling spectra, every second row of the one."""
    x = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
    x = x * 2.0 * 0.7 ** torch.arange(d, dtype=torch.float64)
    return (x + torch.where(torch.arange(n) % 2 == 0, 6.0, -3.0)[:, None]).to(dtype)


def halves(n):
    """Labels across the blobs: the first half and the second."""
    return (torch.arange(n) >= n // 2).long()


def layer_of(d=6, dtype=torch.float64, **options):
    options = {"n_clusters": 2, "n_components": 1, "queue_rows": 8 * 64, **options}
    return layer_with(d, **options).to(dtype)


def gradient(layer, x, *labels, seed=1):
    """The result, and the gradient for a fixed random upstream."""
    rows = x.clone().requires_grad_()
    y = layer(rows, *labels)
    y.backward(torch.randn(y.shape, generator=seeded(seed), dtype=y.dtype))
    return y.detach(), rows.grad


# --- strength and its warm-up -----------------------------------------------------------------


def test_the_strength_rises_with_the_steps_of_training_alone():
    layer, x = layer_of(strength=0.8, warmup_steps=4), cloud()
    found = [layer.strength_now()]
    for _ in range(6):
        layer(x), layer(x)  # several views are one step
        layer.observe(x)
        found.append(layer.strength_now())
        layer.eval()
        layer.observe(x)
        layer.fit()
        layer(x)
        layer.train()
    assert found == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


@pytest.mark.parametrize("strength", [0.3, 1.0])
@pytest.mark.parametrize("n_steps", [0, 1, 4, 9])
def test_frozen_evaluation_applies_the_strength_of_the_step(strength, n_steps):
    x, new = cloud(), cloud(20, seed=2)
    layer = layer_of(strength=strength, warmup_steps=4)
    whole = layer_of()
    for _ in range(n_steps):
        layer.observe(x), whole.observe(x)
    layer.fit(x), whole.fit(x)
    share = strength * min(1.0, n_steps / 4)
    result = whole.eval()(new)
    torch.testing.assert_close(layer.eval()(new), new + share * (result - new))
    torch.testing.assert_close(layer.train()(new), new + share * (whole.train()(new) - new))
    other = layer_of(strength=strength, warmup_steps=4)
    other.load_state_dict(layer.state_dict())
    assert int(other.n_steps) == n_steps
    assert torch.equal(other.eval()(new), layer.eval()(new))
    assert (share > 0) == (not torch.equal(layer(new), new))


def test_at_strength_nought_the_gradient_is_that_of_the_rows():
    x = cloud()
    y, grad = gradient(layer_of(warmup_steps=3), x)
    assert torch.equal(y, x)
    upstream = torch.randn(x.shape, generator=seeded(1), dtype=torch.float64)
    torch.testing.assert_close(grad, upstream)


# --- protect=labels ---------------------------------------------------------------------------


def test_a_layer_that_reads_labels_says_so_where_they_are_missing():
    layer, x = layer_of(protect=True), cloud()
    assert layer.reads_labels
    for call in (layer, layer.observe, layer.fit):
        with pytest.raises(ValueError, match=r"one per embedding: .*layer\(x, labels\)"):
            call(x)
    assert len(layer.queue.rows()) == 0
    assert not bool(layer.is_fitted)


def test_evaluation_takes_no_labels():
    x, labels = cloud(), halves(60)
    layer = layer_of(protect=True)
    layer.fit(x, labels)
    layer.eval()
    expected = layer(x)
    assert torch.equal(layer(x, 1 - labels), expected)
    assert torch.equal(layer(x, torch.zeros(60)), expected)


def test_evaluation_by_the_batch_would_read_its_labels_and_is_refused():
    with pytest.raises(ValueError, match=r"protect.labels=true.*eval_stats=batch.*frozen or refit"):
        layer_with(4, protect=True, eval_stats="batch")
    assert layer_with(4, protect=True, eval_stats="refit").reads_labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_queue_holds_the_labels_of_its_rows(dtype):
    x, labels = cloud(40, dtype=dtype), 5.0 * torch.rand(40, generator=seeded(3))
    x[:, 0] = labels.to(dtype)  # each row knows its own
    layer = layer_of(dtype=dtype, protect=True)
    for part in (slice(0, 25), slice(25, 40)):
        layer.observe(x[part], labels[part])
    held, known = layer.queue.rows(), layer.queue.labels()
    assert held.shape == (40, 6)
    assert torch.equal(held[:, 0], known)
    assert torch.equal(known.sort().values, labels.to(dtype).sort().values)
    assert torch.equal(layer.recent_rows(), held)
    other = layer_of(dtype=dtype, protect=True)
    other.fit(x, labels)
    layer.is_warm = False  # the same start of k-means
    layer.fit()
    torch.testing.assert_close(layer.eval()(x), other.eval()(x))


def test_training_with_a_queue_knows_the_labels_of_both():
    old, new = cloud(50, seed=4), cloud(10, seed=5)
    labels = torch.cat([halves(50), halves(10)])
    whole = layer_of(protect=True, stats="batch", n_clusters=1)
    queued = layer_of(protect=True, n_clusters=1)
    queued.observe(old, labels[:50])
    expected = whole(torch.cat([old, new]), labels)[50:]
    torch.testing.assert_close(queued(new, labels[50:]), expected)
    wrong = queued(new, 1 - labels[50:])
    assert float((wrong - expected).abs().max()) > 1e-3  # labels matter


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("removal", ["project", "clip"])
def test_the_gaps_between_classes_come_back_at_the_bulk_level(n_classes, removal):
    labels = torch.arange(90) % n_classes
    means = 5.0 * torch.eye(n_classes, 6, dtype=torch.float64)
    x = cloud(90) + means[labels]
    layer = layer_of(stats="batch", n_components=2, protect=True, removal=removal)
    y = layer(x, labels)
    stats = layer.estimate(x, labels_N=labels)
    spared = stats.spared_DJ[:, stats.spared_DJ.any(dim=0)]
    assert spared.shape == (6, n_classes - 1)
    rest = y - y @ spared @ spared.T
    level = rest.var(dim=0).sum() / (6 - (n_classes - 1))
    variance = (y @ spared).var(dim=0)
    assert float(variance.max()) == pytest.approx(float(level), rel=1e-9)
    assert bool((variance <= level * (1 + 1e-9)).all())
    for c in range(1, n_classes):
        gap_x, gap_y = (
            (z[labels == c].mean(dim=0) - z[labels == 0].mean(dim=0)) @ stats.spared_DJ
            for z in (x, y)
        )
        torch.testing.assert_close(gap_y, gap_x * stats.kept_J)
        assert float(gap_y.norm()) > 0.1


def test_a_rare_class_is_a_class_in_batch_queue_and_fit():
    """Two rows of 60, of the lowest number: as scores they would fall into one slice with all."""
    x, labels = cloud(), (torch.arange(60) > 1).long()
    axis = torch.nn.functional.normalize(x[:2].mean(dim=0) - x[2:].mean(dim=0), dim=0)
    layer = layer_of(protect=True)

    def overlap(basis):
        return pytest.approx(float((axis @ basis[:, 0]).abs()), abs=1e-9)

    layer(x, labels)
    layer.observe(x, labels)
    other = layer_of(protect=True)
    other.load_state_dict(layer.state_dict())
    for arguments in ((), (x, labels)):
        for fitted in (layer, other):
            fitted.spared_DJ.zero_()
            fitted.fit(*arguments)
            assert overlap(fitted.spared_DJ) == 1.0
    scores = layer_of(protect=True)
    scores.observe(x, labels.double())
    scores.fit()
    assert overlap(scores.spared_DJ) == 0.0


def test_rows_and_labels_that_are_not_finite_stay_out():
    x, labels = cloud(30), halves(30).double()
    layer = layer_of(protect=True, stats="batch")
    keep = torch.arange(30) >= 2
    expected = layer(x[keep], labels[keep])
    x[0, 2], labels[1] = float("nan"), float("nan")
    torch.testing.assert_close(layer(x, labels)[keep], expected)
    layer.observe(x, labels)
    assert len(layer.queue.rows()) == 28


def test_scores_are_read_without_a_warning():
    scores = torch.rand(30, generator=seeded(0))
    torch.set_warn_always(True)
    try:
        layer_of(protect=True, stats="batch")(cloud(30), scores)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("equal", [False, True])
def test_few_rows_one_class_and_equal_rows_are_finite(dtype, equal):
    for n in (1, 2, 3, 8):
        x = cloud(n, dtype=dtype)
        assert_finite_for_any_labels(x[:1].repeat(n, 1) if equal else x, equal)


def assert_finite_for_any_labels(x, equal):
    n, dtype = len(x), x.dtype
    layer = layer_of(protect=True, stats="batch", n_clipped=2, dtype=torch.float32)
    for labels in (torch.zeros(n), torch.arange(n), torch.rand(n, generator=seeded(0))):
        y = layer(x, labels)
        assert y.dtype == dtype
        assert bool(torch.isfinite(y).all())
        if equal or n == 1:
            assert torch.equal(y, x)
            assert layer.counters["rows_passed_through"] == n


# --- directions=random ------------------------------------------------------------------------


def n_removed(stats):
    return stats.direction_KDR.square().sum(dim=(1, 2)).round().tolist()


def test_random_directions_follow_the_seed_and_not_the_rows():
    found = {}
    for seed in (0, 0, 1):
        layer = layer_of(directions="random", n_components=2, seed=seed)
        layer.observe(cloud())
        directions = layer.estimate(cloud()).direction_KDR
        assert torch.equal(directions, layer.estimate(cloud(seed=8)).direction_KDR)
        if seed in found:
            assert torch.equal(directions, found[seed])
        found[seed] = directions
    assert float((found[0] - found[1]).abs().max()) > 0.1
    a, b = found[0]
    assert float((a @ a.T - b @ b.T).abs().max()) > 0.1  # per cluster
    for v in (a, b):
        torch.testing.assert_close(v.T @ v, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("rho", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("n", [1, 5, 12, 60])
def test_as_many_random_directions_as_principal_ones(n, rho):
    x, counts = cloud(n), []
    for directions in ("principal", "random"):
        layer = layer_of(directions=directions, n_components=3, rho=rho, stats="batch")
        counts.append(n_removed(layer.estimate(x)))
        layer(x)
        assert float(layer.counters["directions_removed"]) == sum(counts[-1])
    assert counts[0] == counts[1]


def test_random_directions_are_taken_out_and_frozen():
    x = cloud()
    layer = layer_of(directions="random", n_components=2)
    layer.fit(x)
    y = layer.eval()(x)
    for c in range(2):
        rows = y[(torch.arange(60) % 2) == c]
        v = layer.direction_KDR[(rows @ layer.direction_KDR).abs().amax(dim=(1, 2)).argmin()]
        assert float((rows @ v).abs().max()) < 1e-9
        assert float(rows.square().sum()) > 1.0
    principal = layer_of(n_components=2)
    principal.fit(x)
    assert float(y.square().sum()) > float(principal.eval()(x).square().sum())


@pytest.mark.parametrize("options", [{"directions": "random"}, {"n_components": 0}])
def test_the_gradient_of_directions_that_are_none_of_the_rows_is_warned_of(options):
    with pytest.warns(UserWarning, match=r"removal\.grad.*: without effect in this layer"):
        layer_with(6, grad="full", **options)


def test_random_directions_are_those_of_the_first_step_ever_after():
    layer, x = layer_of(directions="random", n_components=2), cloud()
    first = layer.estimate(x).direction_KDR
    layer.observe(x)
    assert torch.equal(layer.estimate(x).direction_KDR, first)


def test_a_cluster_keeps_its_random_directions_when_another_borrows():
    layer = layer_of(directions="random", n_components=1)
    layer.observe(cloud())
    both = layer.estimate(cloud())
    few = torch.cat([cloud()[:40:2], cloud()[1:2]])  # the second blob has one row
    one = layer.estimate(few)
    assert one.counters["rows_borrowed"] == 1
    c = int(one.assignment_N[0])
    torch.testing.assert_close(both.anchor_KD[c], one.anchor_KD[c], atol=2.0, rtol=0)
    assert torch.equal(one.direction_KDR[c], both.direction_KDR[c])


def test_as_many_random_directions_as_principal_ones_at_low_rank():
    x = cloud(60, 2) @ torch.randn(2, 6, generator=seeded(1), dtype=torch.float64)
    counts = [
        n_removed(layer_of(directions=d, n_components=3, stats="batch").estimate(x))
        for d in ("principal", "random")
    ]
    assert counts[0] == counts[1]


# --- gradients --------------------------------------------------------------------------------

FULL = {"stats": "batch", "grad": "full", "rho": 1.0, "min_rows": 2}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("removal", ["project", "clip"])
@pytest.mark.parametrize(
    ("n", "d", "centre"),  # fewer rows than dimensions in a cluster, and more
    [(8, 5, "cluster"), (8, 5, "shrink"), (12, 3, "none"), (12, 3, "global")],
)
def test_the_whole_layer_passes_gradcheck(k, removal, n, d, centre):
    """Means, levels and directions of the clusters, all by finite differences."""
    options = {**FULL, "n_clusters": k, "removal": removal, "centre": centre}
    assert torch.autograd.gradcheck(layer_of(d, **options), cloud(n, d).requires_grad_())


def test_without_grad_full_directions_are_constants():
    layer = layer_of(3, **{**FULL, "grad": "detach"})
    assert not torch.autograd.gradcheck(layer, cloud(12, 3).requires_grad_(), raise_exception=False)


@pytest.mark.parametrize("strength", [1.0, 0.4])
def test_a_cluster_that_borrows_follows_the_mean_and_directions_of_all(strength):
    x = torch.cat([cloud(20, 4), cloud(3, 4)[:2] + 40.0])
    layer = layer_of(4, strength=strength, **{**FULL, "min_rows": 4})
    layer(x)
    assert layer.counters["rows_borrowed"] == 2
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


@pytest.mark.parametrize("grad", ["levels", "detach"])
def test_levels_alone_pass_gradcheck_where_no_direction_is_removed(grad):
    """An offset cut to the bulk level: exact with grad=levels, a constant cut without."""
    options = {**FULL, "n_components": 0, "rho": 0.25, "centre": "shrink", "grad": grad}
    layer = layer_of(3, **options)
    x = cloud(12, 3).requires_grad_()
    assert (grad == "levels") == torch.autograd.gradcheck(layer, x, raise_exception=False)


@pytest.mark.parametrize("grad", ["levels", "detach"])
@pytest.mark.parametrize("n_clipped", [0, 2])
def test_levels_follow_the_rows_and_directions_do_not(grad, n_clipped):
    """Against the formula in autograd: V a constant, and the share of it with or without."""
    x = cloud(40)
    options = {"n_components": 0, "n_clipped": 2} if n_clipped else {"n_components": 2}
    layer = layer_of(n_clusters=1, removal="clip", stats="batch", grad=grad, **options)
    y, grad_of_layer = gradient(layer, x)
    axes = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)[2][:2].T
    rows = x.clone().requires_grad_()
    centred = rows - rows.mean(dim=0)
    along = centred @ axes
    rest = centred - along @ axes.T
    kept = (rest.square().sum() / 4 / along.square().sum(dim=0)).sqrt()
    kept = kept.detach() if grad == "detach" else kept
    expected = rest + (along * kept) @ axes.T
    torch.testing.assert_close(y, expected.detach())
    expected.backward(torch.randn(x.shape, generator=seeded(1), dtype=torch.float64))
    torch.testing.assert_close(grad_of_layer, rows.grad, atol=1e-9, rtol=0)


def test_levels_where_nothing_is_cut_to_one_are_warned_of():
    with pytest.warns(UserWarning, match=r"removal\.grad: without effect in this layer"):
        layer_with(6, grad="levels")
    with pytest.warns(UserWarning, match=r"removal\.level: without effect in this layer"):
        ClusterPCA(6, removal=Removal(level=2.0))
    for option in ({"removal": "clip"}, {"centre": "shrink"}, {"n_clipped": 1}):
        assert layer_with(6, grad="levels", **option).removal.grad == "levels"
    assert layer_with(6, grad="levels", protect=True).removal.grad == "levels"


@pytest.mark.parametrize(
    ("removal", "centre", "softness"),  # each two of them together
    [
        *(("project", "cluster", 0.0), ("project", "none", 0.5), ("project", "shrink", 0.0)),
        *(("clip", "cluster", 0.5), ("clip", "none", 0.0), ("clip", "shrink", 0.5)),
    ],
)
@given(
    st.integers(2, 30),
    st.integers(2, 8),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 10_000),
)
@light
def test_the_full_gradient_does_not_change_the_value(
    removal, centre, softness, n, d, k, n_clipped, seed
):
    x = cloud(n, d, seed)
    options = {"n_clusters": k, "removal": removal, "centre": centre}
    options |= {"softness": softness if k > 1 else 0.0}
    options |= {"n_clipped": min(n_clipped, d - 1), "stats": "batch"}
    results = [gradient(layer_of(d, grad=g, **options), x) for g in ("detach", "full")]
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-10, rtol=1e-10)
    assert bool(torch.isfinite(results[1][1]).all())


@pytest.mark.parametrize("removal", ["project", "clip"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_full_gradient_is_finite_at_equal_and_repeated_rows(removal, dtype):
    layer = layer_of(removal=removal, dtype=dtype, **FULL)
    for n in (1, 2, 3, 12):
        equal = cloud(1, dtype=dtype).repeat(n, 1)
        y, grad = gradient(layer, equal)
        assert torch.equal(y, equal)
        torch.testing.assert_close(grad, torch.randn(y.shape, generator=seeded(1), dtype=dtype))
        twice = cloud(n, dtype=dtype).repeat(2, 1)  # equal eigenvalues and clusters of pairs
        assert bool(torch.isfinite(gradient(layer, twice)[1]).all()), n
    square = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=dtype)
    tied = layer_of(2, removal=removal, dtype=dtype, n_clusters=1, **FULL)
    assert bool(torch.isfinite(gradient(tied, square)[1]).all())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"centre": "global"},
        {"centre": "shrink", "removal": "clip"},
        {"centre": "shrink", "removal": "clip", "grad": "levels"},
        {"grad": "full"},
        {"keep_scale": True},
        {"n_clipped": 2},
        {"protect": True},
        {"n_clipped": 2, "protect": True, "grad": "levels"},
    ],
)
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_moving_all_rows_together_is_not_rewarded(options, stats):
    """The result does not change under a shift, so the gradient of the rows sums to zero."""
    x = cloud()
    labels = [halves(60)] * options.get("protect", False)
    layer = layer_of(stats=stats, **options)
    if stats == "queue":
        layer.observe(x, *labels)
    torch.testing.assert_close(
        layer_of(**{**options, "stats": "batch"})(x + 7.0, *labels),
        layer_of(**{**options, "stats": "batch"})(x, *labels),
    )
    _, grad = gradient(layer, x, *labels)
    assert float(grad.norm()) > 1.0
    torch.testing.assert_close(grad.sum(dim=0), torch.zeros(6).double(), atol=1e-9, rtol=0)


def test_the_kept_scale_is_a_constant():
    x = cloud()
    plain, kept = (layer_of(stats="batch", keep_scale=k) for k in (False, True))
    (y, grad), (scaled, scaled_grad) = gradient(plain, x), gradient(kept, x)
    factor = float(rms_distance(x) / rms_distance(y))
    assert factor > 1.2
    torch.testing.assert_close(scaled, factor * y)
    torch.testing.assert_close(scaled_grad, factor * grad)


# --- with a queue: the batch stands for all rows ----------------------------------------------


@pytest.mark.parametrize(("n_known", "k"), [(0, 2), (1, 1), (30, 2), (200, 1), (200, 2)])
def test_with_a_queue_centring_has_the_gradient_of_the_means_of_the_batch(n_known, k):
    x = cloud(20)
    layer = layer_of(n_components=0, n_clusters=k, queue_rows=2048)
    if n_known:
        layer.observe(cloud(n_known, seed=3) + 0.5)
    _, grad = gradient(layer, x)
    upstream = torch.randn(20, 6, generator=seeded(1), dtype=torch.float64)
    owner = torch.arange(20) % k
    expected = upstream.clone()
    for c in range(k):  # as if the queue had no row in it
        expected[owner == c] -= upstream[owner == c].mean(dim=0)
    torch.testing.assert_close(grad, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("copies", "k"), [(1, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"removal": "clip"},
        {"removal": "clip", "grad": "levels"},
        {"removal": "clip", "grad": "full"},
        {"grad": "full"},
        {"n_clipped": 1},
        {"assign": "gmm"},
        {"n_clipped": 1, "grad": "levels", "removal": "clip"},
    ],
)
def test_a_queue_of_copies_of_the_batch_has_the_gradient_of_the_batch(copies, k, options):
    """Statistics that do not depend on the number of rows: D < N, and caps out of reach."""
    x = cloud(40)
    if k == 1 and "assign" in options:
        k, options = 2, options | {"softness": 0.5}  # one cluster asks for no way
    batch = layer_of(n_clusters=k, stats="batch", **options)
    queued = layer_of(n_clusters=k, **options)
    for _ in range(copies):
        queued.observe(x), batch.observe(x)
    assert len(queued.queue.rows()) == 40 * copies
    (y, grad), (found, found_grad) = gradient(batch, x), gradient(queued, x)
    torch.testing.assert_close(found, y, atol=1e-9, rtol=0)
    torch.testing.assert_close(found_grad, grad, atol=1e-8, rtol=0)


@pytest.mark.parametrize("make", [layer_of, lambda: ZCA(6, queue_rows=512).double()])
def test_the_weight_of_the_batch_changes_no_value(make):
    layer, x = make(), cloud(20)
    layer.observe(cloud(50, seed=3))
    stats = layer.estimate(torch.cat([layer.recent_rows(), x]))
    expected = layer.transform(x, stats, False)
    torch.testing.assert_close(layer(x), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(layer(x.requires_grad_()), expected, atol=1e-12, rtol=0)


def test_a_row_that_is_not_finite_has_no_part_in_the_weight():
    x = cloud(20)
    layer = layer_of(n_components=0, n_clusters=1)
    layer.observe(cloud(40, seed=3))
    rows = torch.cat([x, torch.full((5, 6), float("nan"), dtype=torch.float64)]).requires_grad_()
    y = layer(rows)
    upstream = torch.randn(20, 6, generator=seeded(1), dtype=torch.float64)
    y[:20].backward(upstream)
    torch.testing.assert_close(rows.grad[:20], upstream - upstream.mean(dim=0))


# --- evaluation and counters ------------------------------------------------------------------


def test_refit_is_frozen_in_the_layer():
    x, new = cloud(), cloud(20, seed=2)
    frozen, refit = layer_of(), layer_of(eval_stats="refit")
    with pytest.raises(RuntimeError, match=r"fit\(\)"):
        refit.eval()(new)
    for layer in (frozen, refit):
        layer.train().observe(x)
        layer.fit(cloud(80, seed=6))
    assert torch.equal(refit.eval()(new), frozen.eval()(new))
    assert torch.equal(refit(new)[:4], refit(torch.cat([new[:4], x[:16]]))[:4])
    stats = frozen.estimate(cloud(80, seed=6), to_freeze=True)
    torch.testing.assert_close(refit(new), apply_cluster_pca(new, stats))


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_energy_kept_is_counted_in_training(strength):
    x = cloud()
    layer = layer_of(stats="batch", strength=strength)
    y = layer(x)
    expected = float(rms_distance(y) ** 2 / rms_distance(x) ** 2)
    assert float(layer.counters["energy_kept"]) == pytest.approx(expected)
    assert expected < 0.9
    x[3, 1] = float("nan")
    y = layer(x)
    keep = torch.arange(60) != 3
    expected = float(rms_distance(y[keep]) ** 2 / rms_distance(x[keep]) ** 2)
    assert float(layer.counters["energy_kept"]) == pytest.approx(expected)
    layer(x.requires_grad_())
    assert not layer.counters["energy_kept"].requires_grad
    layer.fit(cloud())
    layer.eval()(x)
    assert layer.counters == {}
    layer.train()(torch.ones(5, 6).double())
    assert float(layer.counters["energy_kept"]) == 1.0


# --- what a run is refused --------------------------------------------------------------------

ONE, CENTRED = {"n_clusters": 1, "n_components": 2}, {"n_clusters": 2, "n_components": 0}


@pytest.mark.parametrize(
    ("shape", "idle", "warned"),
    [
        (ONE, {"assign": "spherical"}, "assign.method"),
        (ONE, {"softness": 0.5}, "assign.softness"),
        (ONE, {"n_iterations": 9}, "assign.n_iterations"),
        (ONE, {"assign": "gmm"}, None),  # gmm_pca with one cluster
        (CENTRED, {"rho": 0.5}, "removal.rho"),
        (CENTRED, {"removal": "clip"}, None),  # clip without directions
    ],
)
def test_what_changes_nothing_is_warned_of_unless_a_preset_has_it(shape, idle, warned):
    x, new = cloud(), cloud(20, seed=2)
    found = [
        apply_cluster_pca(new, fit_with(x, **shape, **options, generator=seeded(0)))
        for options in ({}, idle)
    ]
    assert torch.equal(*found)
    told = pytest.warns(UserWarning, match=f"^{warned}: without effect")
    with told if warned else nullcontext():
        layer = layer_of(**shape, **idle)
    assert torch.equal(layer(x), layer_of(**shape)(x))
    layer_of(n_clusters=2, n_components=1, **idle)  # has something to act on, and is silent


BASE = ("encoder=tiny", "source=demo", "isotropy=protect_labels")


SITE, FORM, POOLING = "use site=[pooled]", "use task.form=cross", "use pooling=cls or mean"


@pytest.mark.parametrize(
    ("overrides", "ways_out"),
    [
        (("site=[tokens]", "pooling=mean"), [SITE]),
        (("site=[pooled,layer_1]",), [SITE]),
        (("task.form=bi",), [FORM]),
        (("task=stsb", "task.form=bi", "pooling=mean"), [FORM]),
        (("task=wic", "pooling=spans", "task.prompt=none"), [POOLING]),
        (
            ("task=wic", "pooling=spans", "task.prompt=none", "task.form=bi", "site=[tokens]"),
            [SITE, FORM, POOLING],
        ),
    ],
)
def test_labels_that_no_row_owns_are_refused_with_the_way_out(overrides, ways_out):
    mistakes = all_mistakes(compose_run([*BASE, *overrides]))
    for mistake, way_out in zip(mistakes, ways_out, strict=True):
        assert mistake.startswith("isotropy.protect.labels=true needs one row an example")
        assert way_out in mistake
        assert "isotropy.protect.labels=false" in mistake
    fixed = [o for o in overrides if not o.startswith(("site", "task.form", "pooling"))]
    assert all_mistakes(compose_run([*BASE, *fixed])) == []


@pytest.mark.parametrize(("task", "pooling"), [("rte", "cls"), ("wic", "mean"), ("stsb", "mean")])
def test_pooled_rows_of_one_sequence_own_their_label(task, pooling):
    assert all_mistakes(compose_run([*BASE, f"task={task}", f"pooling={pooling}"])) == []
