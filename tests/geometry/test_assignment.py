"""Clusters and memberships against scikit-learn and slow loops. N rows, D width, K clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from isotrain.geometry.assignment import Anchors, memberships, nearest
from isotrain.geometry.cluster_pca import apply_cluster_pca
from isotrain.geometry.kmeans import kmeans, spherical_kmeans
from isotrain.geometry.mixture import Mixture, fit_mixture
from tests.cluster_parts import anchors_with, fit_with, layer_with

light = settings(max_examples=15)
over_ways = pytest.mark.parametrize("assign", ["kmeans", "spherical", "gmm"])


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def blobs(n=90, d=5, k=3, seed=0, spread=1.0, dtype=torch.float64):
    means = 3.0 * torch.randn(k, d, generator=seeded(seed + 7), dtype=torch.float64)
    noise = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
    return (means[torch.arange(n) % k] + spread * noise).to(dtype)


def anchors_of(x, k, assign, seed=0, **options):
    return anchors_with(x, k, assign, generator=seeded(seed), **options)


def slow_energies(x, anchors):
    """The energy of each row and anchor, pair by pair."""
    energy = np.empty((len(x), len(anchors.anchor_KD)))
    for i, row in enumerate(x.double().numpy()):
        for k, anchor in enumerate(anchors.anchor_KD.double().numpy()):
            if anchors.method == "gmm":
                variance = anchors.variance_KD[k].double().numpy()
                density = ((row - anchor) ** 2 / variance + np.log(2 * np.pi * variance)).sum()
                energy[i, k] = 0.5 * density - float(anchors.log_weight_K[k])
            elif anchors.method == "spherical":
                energy[i, k] = ((row / np.linalg.norm(row) - anchor) ** 2).sum()
            else:
                energy[i, k] = ((row - anchor) ** 2).sum()
    return energy


# --- the cluster of a row ---------------------------------------------------------------------


@over_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_anchors_are_those_of_the_way_that_is_named(assign, dtype):
    x = blobs(dtype=dtype)
    anchors, owner = anchors_of(x, 3, assign)
    same = {"generator": seeded(0), "n_iterations": 10}
    if assign == "gmm":
        mixture = fit_mixture(x, 3, **same)
        for found, expected in zip(anchors[:3], mixture, strict=True):
            assert torch.equal(found, expected)
        assert float(anchors.unit) == 1.0
    else:
        expected = (kmeans if assign == "kmeans" else spherical_kmeans)(x, 3, **same)
        assert torch.equal(anchors.anchor_KD, expected.centroid_KD)
        assert torch.equal(owner, expected.assignment_N)
        assert anchors.variance_KD.shape == (0, 5)
        energy = slow_energies(x, anchors)
        own = energy[np.arange(len(x)), owner.numpy()].mean()
        assert float(anchors.unit) == pytest.approx(own, rel=1e-4)
    assert anchors.method == assign
    assert anchors.anchor_KD.dtype == dtype


@over_ways
@given(st.integers(1, 25), st.integers(1, 5), st.integers(2, 6), st.integers(0, 10_000))
@light
def test_a_row_is_in_the_cluster_of_least_energy(assign, n, d, k, seed):
    x = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
    anchors, owner = anchors_of(x, k, assign, seed)
    energy = slow_energies(x, anchors)
    own = energy[np.arange(n), owner.numpy()]
    assert (own <= energy.min(axis=1) + 1e-9 * (1.0 + np.abs(own))).all()
    again = energy[np.arange(n), nearest(x, anchors).numpy()]
    np.testing.assert_allclose(again, own, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("assign", ["kmeans", "spherical"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("seed", range(5))
def test_rows_on_their_anchors_belong_to_them_alone(assign, dtype, scale, seed):
    """Their mean energy is rounding, of either sign, at any scale."""
    x = scale * blobs(4, 6, 4, seed, dtype=dtype)
    anchors, owner = anchors_of(x, 4, assign, seed)
    own = torch.nn.functional.one_hot(owner, 4).to(dtype)
    torch.testing.assert_close(memberships(x, anchors, 0.5), own)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_softness_is_relative_also_to_a_small_scatter(scale):
    """In float32, with clusters 2,000 times as far apart as they are wide."""
    means = 10.0 * torch.eye(2, 8)[torch.arange(64) % 2]
    x = means + 0.005 * torch.randn(64, 8, generator=seeded(1))
    unit, scaled = (float(anchors_of(s * x, 2, "kmeans")[0].unit) for s in (1.0, scale))
    assert unit == pytest.approx(8 * 0.005**2, rel=0.2)
    assert scaled == pytest.approx(scale**2 * unit, rel=0.1)  # an energy of 2e-4 beside 200


@over_ways
def test_one_cluster_holds_all_rows_and_draws_nothing(assign):
    x = blobs()
    anchors, owner = anchors_with(x, 1, assign)
    assert owner.tolist() == [0] * len(x)
    torch.testing.assert_close(anchors.anchor_KD[0], x.mean(dim=0))
    assert memberships(x, anchors, 0.7).tolist() == [[1.0]] * len(x)
    assert nearest(x, anchors).tolist() == owner.tolist()


@over_ways
@pytest.mark.parametrize("softness", [0.0, 0.5])
@pytest.mark.parametrize(
    "x", [torch.ones(6, 3), torch.zeros(4, 3), torch.randn(1, 3), blobs(4, 3).float()]
)
def test_equal_rows_one_row_and_fewer_rows_than_clusters(assign, softness, x):
    anchors, owner = anchors_of(x, 5, assign)
    assert owner.shape == (len(x),)
    share = memberships(x, anchors, softness)
    assert share.dtype == x.dtype
    assert bool(torch.isfinite(share).all())
    torch.testing.assert_close(share.sum(dim=1), torch.ones(len(x)))


# --- how much of each -------------------------------------------------------------------------


@over_ways
@pytest.mark.parametrize("softness", [0.05, 0.5, 1.0, 20.0])
@given(st.integers(1, 25), st.integers(1, 5), st.integers(2, 6), st.integers(0, 10_000))
@light
def test_memberships_are_the_softmax_of_energies(assign, softness, n, d, k, seed):
    x = blobs(n, d, 3, seed)
    anchors, _ = anchors_of(x, k, assign, seed)
    found = memberships(x, anchors, softness).numpy()
    unit = float(anchors.unit) or 1.0
    energy = slow_energies(x, anchors) / (softness * unit)
    expected = np.exp(energy.min(axis=1, keepdims=True) - energy)
    expected /= expected.sum(axis=1, keepdims=True)
    # An energy is a difference of squares, so it is known to about eps times the largest of them,
    # and the softmax divides that by softness * unit.
    largest = max(float(x.square().sum(dim=1).max()), np.abs(energy).max() * softness * unit)
    rounding = 64 * np.finfo(np.float64).eps * largest / (softness * unit)
    np.testing.assert_allclose(found, expected, atol=1e-12 + rounding)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert (found >= 0.0).all()


@over_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_small_softness_tends_to_the_cluster_alone(assign, dtype):
    x = blobs(spread=3.0, dtype=dtype)
    anchors, owner = anchors_of(x, 3, assign)
    hard = memberships(x, anchors, 0.0)
    assert torch.equal(hard, torch.nn.functional.one_hot(owner, 3).to(dtype))
    gaps = [float((memberships(x, anchors, s) - hard).abs().mean()) for s in (1.0, 0.1, 0.01, 1e-6)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.02
    assert gaps[-1] < 1e-6
    even = memberships(x, anchors, 1e9)
    torch.testing.assert_close(even, torch.full_like(even, 1 / 3))


@pytest.mark.parametrize("seed", range(3))
def test_a_mixture_at_softness_one_is_scikit_learns_posterior(seed):
    x = blobs(200, 6, 4, seed=seed, spread=2.5)
    anchors, owner = anchors_of(x, 4, "gmm")
    theirs = GaussianMixture(4, covariance_type="diag")
    theirs.weights_ = anchors.log_weight_K.exp().numpy()
    theirs.means_ = anchors.anchor_KD.numpy()
    theirs.covariances_ = anchors.variance_KD.numpy()
    theirs.precisions_cholesky_ = 1.0 / np.sqrt(theirs.covariances_)
    posterior = theirs.predict_proba(x.numpy())
    np.testing.assert_allclose(memberships(x, anchors, 1.0).numpy(), posterior, atol=1e-10)
    assert np.array_equal(owner.numpy(), theirs.predict(x.numpy()))
    assert posterior.max(axis=1).min() < 0.9  # some row is between two


@pytest.mark.parametrize("assign", ["kmeans", "spherical"])
def test_softness_does_not_depend_on_the_unit_of_the_rows(assign):
    x = blobs()
    one, two = (memberships(s * x, anchors_of(s * x, 3, assign)[0], 0.5) for s in (1.0, 1000.0))
    torch.testing.assert_close(one, two)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_memberships_far_from_the_origin(dtype):
    x = blobs(dtype=dtype)
    anchors, _ = anchors_of(x, 3, "kmeans")
    moved = anchors._replace(anchor_KD=anchors.anchor_KD + 1000.0)
    share, far = memberships(x, anchors, 0.5), memberships(x + 1000.0, moved, 0.5)
    torch.testing.assert_close(share, far, atol=1e-3 if dtype == torch.float32 else 1e-10, rtol=0)


@over_ways
def test_results_do_not_jump_where_the_nearest_anchor_changes(assign):
    """On a line between two blobs, ten times finer steps change soft results ten times less."""
    x = blobs(spread=1.5)
    largest = {}
    for softness in (0.0, 0.5):
        options = {"assign": assign, "softness": softness}
        stats = fit_with(x, 3, 1, generator=seeded(0), **options)
        anchors = Anchors(*stats[:1], stats.variance_KD, stats.log_weight_K, stats.unit, assign)
        for n in (2001, 20001):
            path = torch.lerp(x[0], x[1], torch.linspace(0.0, 1.0, n).double()[:, None])
            share = memberships(path, anchors, softness)
            y = apply_cluster_pca(path, stats)
            largest[softness, n] = float((y[1:] - y[:-1]).norm(dim=1).max())
            slow = path - share @ stats.centre_KD  # the clusters' parts, one after the other
            for c, v in enumerate(stats.direction_KDR):
                slow = slow - share[:, c : c + 1] * ((path - share @ stats.centre_KD) @ v @ v.T)
            torch.testing.assert_close(y, slow, atol=1e-10, rtol=0)
        assert len(nearest(path, anchors).unique()) > 1
    assert largest[0.0, 20001] > 0.9 * largest[0.0, 2001]
    assert largest[0.5, 20001] == pytest.approx(0.1 * largest[0.5, 2001], rel=0.1)


@over_ways
def test_memberships_pass_gradcheck(assign):
    x = blobs(8, 3, spread=2.0)
    anchors, _ = anchors_of(blobs(40, 3, spread=2.0), 3, assign)
    assert float(memberships(x, anchors, 2.0).max(dim=1).values.min()) < 0.9  # not saturated
    inputs = x.requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: memberships(rows, anchors, 2.0), inputs)


@over_ways
@pytest.mark.parametrize("removal", ["project", "clip"])
def test_a_soft_frozen_layer_passes_gradcheck(assign, removal):
    layer = layer_with(
        3, 3, 1, assign=assign, softness=2.0, removal=removal, n_clipped=1, queue_rows=512
    ).double()
    layer.fit(blobs(40, 3))
    layer.eval()
    assert torch.autograd.gradcheck(layer, blobs(8, 3, seed=3).requires_grad_())


# --- in the layer -----------------------------------------------------------------------------


@over_ways
@pytest.mark.parametrize("softness", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frozen_evaluation_uses_the_anchors_of_the_fit(assign, softness, dtype):
    x, new = blobs(dtype=dtype), blobs(30, seed=4, dtype=dtype)
    layer = layer_with(5, 3, 1, assign=assign, softness=softness, queue_rows=1024).to(dtype)
    layer.observe(x)
    layer.fit()
    stats = fit_with(
        x,
        3,
        1,
        assign=assign,
        softness=softness,
        init=layer.warm_KD,
        n_iterations=100,
        exact=True,
    )
    assert torch.equal(layer.anchor_KD, stats.anchor_KD)
    torch.testing.assert_close(layer.eval()(new), apply_cluster_pca(new, stats))
    other = layer_with(5, 3, 1, assign=assign, softness=softness, queue_rows=1024, seed=5)
    other.to(dtype).load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(other.eval()(new), layer(new))
    assert torch.equal(other.train()(new), layer.train()(new))
    assert torch.equal(layer(new)[:7], layer(new)[:7])


@over_ways
def test_the_known_cluster_of_a_fitted_row_is_the_one_found_again(assign):
    x = blobs(120, 6, 4, spread=2.0)
    stats = fit_with(x, 4, 2, assign=assign, generator=seeded(0))
    known = apply_cluster_pca(x, stats, stats.assignment_N)
    torch.testing.assert_close(apply_cluster_pca(x, stats), known, atol=1e-10, rtol=0)
    loop = torch.empty_like(x)
    for c in range(4):  # statistics are those of the rows of the cluster
        rows = x[stats.assignment_N == c]
        centred = rows - rows.mean(dim=0)
        top = np.linalg.svd(centred.numpy(), full_matrices=False)[2][:2]
        kept = torch.from_numpy(np.eye(6) - top.T @ top)
        loop[stats.assignment_N == c] = centred @ kept
    torch.testing.assert_close(known, loop, atol=1e-9, rtol=0)


def test_the_ways_do_not_agree_with_each_other():
    """Length, direction and spread are read by one of them each."""
    angle = torch.tensor([0.0, 0.02, 1.5, 1.52] * 10, dtype=torch.float64)
    length = torch.tensor([1.0, 9.0, 1.0, 9.0] * 10, dtype=torch.float64)
    x = length[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    x = x + 0.05 * torch.randn(40, 2, generator=seeded(0), dtype=torch.float64)
    init = x[[0, 3]]
    by_cosine = anchors_with(x, 2, "spherical", init=init)[1]
    assert by_cosine.tolist() == [0, 0, 1, 1] * 10
    by_distance = anchors_with(x, 2, "kmeans", init=init)[1]
    assert by_distance.tolist() != by_cosine.tolist()
    # One tight blob inside a wide one: the mixture tells them apart, a centroid cannot.
    tight = 0.05 * torch.randn(200, 2, generator=seeded(1), dtype=torch.float64)
    broad = 3.0 * torch.randn(200, 2, generator=seeded(2), dtype=torch.float64) + 1.0
    both = torch.cat([tight, broad])
    by_likelihood, owner = anchors_with(both, 2, "gmm", init=both[[0, 300]], n_iterations=200)
    right = (owner[:200] == owner[0]).sum() + (owner[200:] != owner[0]).sum()
    assert int(right) > 390
    assert float(by_likelihood.variance_KD.max() / by_likelihood.variance_KD.min()) > 100


def test_a_mixture_of_given_parameters_follows_weights_and_spread():
    """Closed form in one dimension: equal densities where the weighted Gaussians cross."""
    mean, variance = torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [4.0]])
    weight = torch.tensor([0.8, 0.2], dtype=torch.float64)
    mixture = Mixture(mean.double(), variance.double(), weight.log())
    anchors = Anchors(*mixture, torch.ones(()).double(), "gmm")

    def log_ratio(x):
        wide = math.log(0.2) - 0.5 * math.log(4.0) - (x - 4.0) ** 2 / 8.0
        return wide - (math.log(0.8) - x**2 / 2.0)

    for x in (-3.0, 0.0, 1.9, 2.5, 7.0):
        row = torch.tensor([[x]], dtype=torch.float64)
        share = 1.0 / (1.0 + math.exp(-log_ratio(x)))
        assert memberships(row, anchors, 1.0)[0, 1].item() == pytest.approx(share, abs=1e-12)
        half = 1.0 / (1.0 + math.exp(-log_ratio(x) / 2.0))
        assert memberships(row, anchors, 2.0)[0, 1].item() == pytest.approx(half, abs=1e-12)
        assert nearest(row, anchors).item() == int(log_ratio(x) > 0)
