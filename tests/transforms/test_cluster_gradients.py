"""Gradients of ClusterPCA: by finite differences, without reward for a shift, and with a queue.

N embeddings, D width, K clusters, R directions.
"""

import pytest
import torch

from isotrain.transforms.clip import Clip
from isotrain.transforms.gmm_pca import GmmPCA
from isotrain.transforms.shrink_clip import ShrinkClip
from isotrain.transforms.zca import ZCA
from tests.clouds import normal
from tests.clouds import two_blobs as cloud
from tests.cluster_parts import layer_with


def layer_of(d=6, dtype=torch.float64, **options):
    options = {"n_clusters": 2, "n_components": 1, "queue_rows": 8 * 64, **options}
    return layer_with(d, **options).to(dtype)


def gradient(layer, x, *labels):
    """The result, and the gradient for a fixed random upstream."""
    rows = x.clone().requires_grad_()
    y = layer(rows, *labels)
    y.backward(normal(*y.shape, seed=1, mean=0.0, dtype=y.dtype))
    return y.detach(), rows.grad


# --- the batch --------------------------------------------------------------------------------

MEANS = {"stats": "batch", "n_components": 0}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(("n", "d"), [(8, 5), (12, 3)])  # N < D in a cluster, and more
def test_the_means_pass_gradcheck(k, n, d):
    layer = layer_of(d, n_clusters=k, **MEANS)
    assert torch.autograd.gradcheck(layer, cloud(n, d).requires_grad_())


@pytest.mark.parametrize("strength", [1.0, 0.4])
def test_a_cluster_that_falls_back_follows_the_mean_of_all(strength):
    x = torch.cat([cloud(20, 4), cloud(3, 4)[:2] + 40.0])
    layer = layer_of(4, strength=strength, **MEANS)
    layer(x)
    assert layer.counters["rows_borrowed"] == 2
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


@pytest.mark.parametrize(
    "options", [{"n_components": 2, "kind": Clip}, {"n_components": 0, "n_leading": 2}]
)
def test_levels_and_directions_are_constants_of_the_gradient(options):
    """Against the formula in autograd, with V and the share of it as constants."""
    x = cloud(40)
    layer = layer_of(n_clusters=1, stats="batch", **options)
    y, grad_of_layer = gradient(layer, x)
    axes = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)[2][:2].T

    def formula(rows):
        centred = rows - rows.mean(dim=0)
        along = centred @ axes
        rest = centred - along @ axes.T
        kept = (rest.square().sum() / 4 / along.square().sum(dim=0)).sqrt()
        return rest + (along * kept.detach()) @ axes.T

    expected, expected_grad = gradient(formula, x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grad_of_layer, expected_grad, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_is_finite_at_equal_and_repeated_embeddings(dtype):
    layer = layer_of(dtype=dtype, stats="batch")
    for n in (1, 2, 3, 12):
        equal = cloud(1, dtype=dtype).repeat(n, 1)
        y, grad = gradient(layer, equal)
        assert torch.equal(y, equal)
        torch.testing.assert_close(grad, normal(*y.shape, seed=1, mean=0.0, dtype=dtype))
        twice = cloud(n, dtype=dtype).repeat(2, 1)  # equal eigenvalues and clusters of pairs
        assert bool(torch.isfinite(gradient(layer, twice)[1]).all()), n


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": ShrinkClip},
        {"n_leading": 2, "protect_labels": True},
    ],
)
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_moving_all_embeddings_together_is_not_rewarded(options, stats):
    """The result does not change under a shift, so the gradients sum to zero."""
    x, labels = cloud(), [(torch.arange(60) >= 30).long()] * options.get("protect_labels", False)
    layer, batch = layer_of(stats=stats, **options), layer_of(stats="batch", **options)
    layer.observe(x, *labels)
    torch.testing.assert_close(batch(x + 7.0, *labels), batch(x, *labels))
    _, grad = gradient(layer, x, *labels)
    assert float(grad.norm()) > 1.0
    torch.testing.assert_close(grad.sum(dim=0), torch.zeros(6).double(), atol=1e-9, rtol=0)


# --- with a queue: the batch speaks for all embeddings ------------------------------------------


@pytest.mark.parametrize(("n_known", "k"), [(0, 2), (1, 1), (30, 2), (200, 1), (200, 2)])
def test_with_a_queue_centring_has_the_gradient_of_the_means_of_the_batch(n_known, k):
    x = torch.cat([cloud(20), torch.full((5, 6), float("nan"), dtype=torch.float64)])
    layer = layer_of(n_components=0, n_clusters=k, queue_rows=2048)
    if n_known:
        layer.observe(cloud(n_known, seed=3) + 0.5)
    rows, upstream = x.requires_grad_(), normal(20, 6, seed=1)
    layer(rows)[:20].backward(upstream)
    owner, expected = torch.arange(20) % k, upstream.clone()
    for c in range(k):  # as if the queue had nothing in it
        expected[owner == c] -= upstream[owner == c].mean(dim=0)
    torch.testing.assert_close(rows.grad[:20], expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("copies", "k"), [(1, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": Clip},
        {"n_leading": 1},
        {"kind": GmmPCA},
    ],
)
def test_a_queue_of_copies_of_the_batch_has_the_gradient_of_the_batch(copies, k, options):
    """Statistics that do not depend on the number of embeddings: D < N, caps out of reach."""
    x = cloud(40)
    batch, queued = (layer_of(n_clusters=k, stats=s, **options) for s in ("batch", "queue"))
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
    torch.testing.assert_close(layer(x.requires_grad_()), expected, atol=1e-12, rtol=0)
