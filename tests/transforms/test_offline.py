"""Cluster-based isotropy as published, offline: 27 clusters, 12 directions each, no training.

Rajaee and Pilehvar 2021. N rows, D dimensions, K clusters, R directions.
"""

import numpy as np
import pytest
import torch

from isotrain.geometry.cluster_pca import apply_cluster_pca
from isotrain.geometry.kmeans import nearest_centroid
from isotrain.geometry.spectra import EXACT_BELOW
from tests.clouds import cloud
from tests.cluster_parts import by_scikit_learn, fit_with, layer_with

K, R = 27, 12
SHAPES = [(4096, 96), (1500, 256)]


def heavy(n, d, seed=0):
    """Rows in 20 clusters of falling size and falling spectra; Student's t with 3 degrees."""
    rng = np.random.default_rng(seed)
    share_K = 1.0 / np.arange(1, 21)
    owner_N = rng.choice(20, n, p=share_K / share_K.sum())
    centre_KD = 4.0 * rng.standard_normal((20, d))
    scale_KD = rng.permuted(np.tile(2.0 * np.arange(1, d + 1) ** -0.7, (20, 1)), axis=1)
    noise_ND = rng.standard_normal((n, d)) * scale_KD[owner_N]
    tail_N = np.sqrt(3.0 / rng.chisquare(3, n))
    return torch.from_numpy(centre_KD[owner_N] + noise_ND * tail_N[:, None] + 2.0)


def gaussian(n, d):
    return cloud(n, d, seed=1, mean=1.0, low=3.0, high=0.2)


def fit(x, **options):
    generator = torch.Generator().manual_seed(0)
    options = {"rho": 1.0, "generator": generator, "n_iterations": 10} | options
    return fit_with(x, K, R, **options)


def relative_error(found, expected):
    return ((found.double() - expected).norm() / expected.norm()).item()


def largest_error(found, expected):
    """The largest absolute error, in units of the rms of the entries."""
    return ((found - expected).abs().max() / expected.square().mean().sqrt()).item()


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("rows", [heavy, gaussian])
def test_equals_scikit_learn_cluster_by_cluster(rows, n, d):
    x = rows(n, d)
    stats = fit(x, exact=True)
    assert stats.direction_KDR.shape == (K, d, R)
    found = apply_cluster_pca(x, stats, stats.assignment_N)
    assert largest_error(found, by_scikit_learn(x, stats.assignment_N, R)) < 1e-8
    single = fit(x.float(), exact=True)
    found = apply_cluster_pca(x.float(), single, single.assignment_N)
    assert found.dtype == torch.float32
    assert relative_error(found, by_scikit_learn(x.float(), single.assignment_N, R)) < 1e-5


def test_clusters_of_every_size_are_covered():
    count_K = torch.bincount(fit(heavy(1500, 256)).assignment_N, minlength=K)
    assert int(count_K.max()) > EXACT_BELOW  # iterated, unless exact
    assert bool(((count_K > R + 1) & (count_K <= EXACT_BELOW)).any())
    assert int(count_K.min()) <= R + 1  # cannot lose twelve directions


@pytest.mark.parametrize(("rows", "n"), [(heavy, 1500), (gaussian, 8192)])
def test_the_iterated_directions_of_a_training_step_are_near(rows, n):
    """Measured, relative: rows 9e-5 and 4e-4, energy left 4e-9 and 2e-8."""
    x = rows(n, 256)
    stats = fit(x)
    found = apply_cluster_pca(x, stats, stats.assignment_N)
    expected = by_scikit_learn(x, stats.assignment_N, R)
    assert 1e-6 < relative_error(found, expected) < 2e-3  # above: it is another calculation
    energy = expected.square().sum().item()
    assert found.square().sum().item() == pytest.approx(energy, rel=1e-6)


def test_clusters_of_one_two_and_equal_rows():
    far_KD = 1e3 * torch.eye(3, 40, dtype=torch.float64)
    near_D = torch.nn.functional.one_hot(torch.tensor(5), 40)
    x = torch.cat([heavy(400, 40), far_KD[[0, 1, 1, 2, 2, 2, 2]]])
    x[402] += near_D
    own_N = torch.cat([torch.zeros(400), torch.tensor([1, 2, 2, 3, 3, 3, 3])]).long()
    init_KD = torch.stack([x[own_N == c].mean(dim=0) for c in range(4)])
    stats = fit_with(x, 4, R, rho=1.0, init=init_KD, exact=True)
    assert torch.equal(stats.assignment_N, own_N)
    found, expected = apply_cluster_pca(x, stats, own_N), by_scikit_learn(x, own_N, R)
    assert largest_error(found, expected) < 1e-8
    assert bool((found[400:].norm(dim=1) > 0.1).all())  # none is zeroed
    assert stats.counters["rows_borrowed"].item() == 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_layer_offline(dtype):
    """Fitted on rows and applied to them: what the clusters of its own anchors say."""
    x = heavy(1500, 160).to(dtype)
    layer = layer_with(160, n_clusters=K, n_components=R, rho=1.0).to(dtype)
    layer.fit(x)
    found = layer.eval()(x)
    own_N = nearest_centroid(x, layer.anchor_KD)
    assert len(own_N.unique()) == K
    assert int(torch.bincount(own_N).max()) > EXACT_BELOW
    expected = by_scikit_learn(x, own_N, R)
    assert relative_error(found, expected) < (1e-5 if dtype == torch.float32 else 1e-9)
