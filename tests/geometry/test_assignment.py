"""Clusters of embeddings against scikit-learn and slow loops. N rows, D width, K clusters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from isotrain.geometry.kmeans import kmeans
from isotrain.geometry.mixture import fit_mixture, likeliest, log_joint
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.gmm_pca import GmmPCA
from tests.clouds import seeded
from tests.cluster_parts import by_scikit_learn

light = settings(max_examples=15)
over_kinds = pytest.mark.parametrize("kind", [ClusterPCA, GmmPCA])


def blobs(n=90, d=5, k=3, seed=0, spread=1.0, dtype=torch.float64):
    means = 3.0 * torch.randn(k, d, generator=seeded(seed + 7), dtype=torch.float64)
    noise = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
    return (means[torch.arange(n) % k] + spread * noise).to(dtype)


def slow_energies(x, stats):
    """Squared distance, or −ln(weight·density), of each row and anchor, pair by pair."""
    energy = np.empty((len(x), len(stats.anchor_KD)))
    for i, row in enumerate(x.double().numpy()):
        for k, anchor in enumerate(stats.anchor_KD.double().numpy()):
            if hasattr(stats, "variance_KD"):
                variance = stats.variance_KD[k].double().numpy()
                density = ((row - anchor) ** 2 / variance + np.log(2 * np.pi * variance)).sum()
                energy[i, k] = 0.5 * density - float(stats.log_weight_K[k])
            else:
                energy[i, k] = ((row - anchor) ** 2).sum()
    return energy


@over_kinds
@given(st.integers(1, 25), st.integers(1, 5), st.integers(2, 6), st.integers(0, 10_000))
@light
def test_a_row_is_in_the_cluster_of_least_energy(kind, n, d, k, seed):
    x = torch.randn(n, d, generator=seeded(seed), dtype=torch.float64)
    layer = kind(d, k, 0, seed=seed)
    stats = layer.estimate(x)
    energy = slow_energies(x, stats)
    own = energy[np.arange(n), stats.assignment_N.numpy()]
    assert (own <= energy.min(axis=1) + 1e-9 * (1.0 + np.abs(own))).all()
    again = energy[np.arange(n), layer.nearest(x, stats).numpy()]
    np.testing.assert_allclose(again, own, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_mixture_is_scikit_learns(seed):
    x = blobs(200, 6, 4, seed=seed, spread=2.5)
    mixture = fit_mixture(x, kmeans(x, 4, generator=seeded(0), n_iterations=10))
    theirs = GaussianMixture(4, covariance_type="diag")
    theirs.weights_ = mixture.log_weight_K.exp().numpy()
    theirs.means_ = mixture.anchor_KD.numpy()
    theirs.covariances_ = mixture.variance_KD.numpy()
    theirs.precisions_cholesky_ = 1.0 / np.sqrt(theirs.covariances_)
    posterior = theirs.predict_proba(x.numpy())
    joint_NK = log_joint(x, mixture)
    np.testing.assert_allclose(joint_NK.softmax(dim=1).numpy(), posterior, atol=1e-10)
    assert np.array_equal(likeliest(x, mixture).numpy(), theirs.predict(x.numpy()))
    assert posterior.max(axis=1).min() < 0.9  # some row is between two


# --- in the layer -----------------------------------------------------------------------------


@over_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frozen_evaluation_uses_the_anchors_of_the_fit(kind, dtype):
    x, new = blobs(dtype=dtype), blobs(30, seed=4, dtype=dtype)
    layer = kind(5, 3, 1, queue_rows=1024).to(dtype)
    layer.observe(x)
    layer.fit()
    stats = layer.estimate(x, to_freeze=True)
    assert torch.equal(layer.anchor_KD, stats.anchor_KD)
    expected = layer.transform(new, stats, are_last=False)
    torch.testing.assert_close(layer.eval()(new), expected)
    other = kind(5, 3, 1, queue_rows=1024, seed=5)
    other.to(dtype).load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(other.eval()(new), layer(new))
    assert torch.equal(other.train()(new), layer.train()(new))
    assert torch.equal(layer(new)[:7], layer(new)[:7])


@over_kinds
def test_the_known_cluster_of_a_fitted_row_is_the_one_found_again(kind):
    x = blobs(120, 6, 4, spread=2.0)
    layer = kind(6, 4, 2)
    stats = layer.estimate(x)
    known = layer.transform(x, stats, are_last=True)
    torch.testing.assert_close(layer.transform(x, stats, False), known, atol=1e-10, rtol=0)
    expected = by_scikit_learn(x, stats.assignment_N, 2)
    torch.testing.assert_close(known, expected, atol=1e-9, rtol=0)
