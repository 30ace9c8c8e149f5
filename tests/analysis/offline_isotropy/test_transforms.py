"""Transforms against slow references, frozen statistics, and shapes of clouds."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.decomposition import PCA

from isotrain.analysis.offline_isotropy.analysis import (
    RECIPES,
    OfflineIsotropy,
    fit_transforms,
    shape_of,
)

OPTIONS = OfflineIsotropy(n_clusters=4, n_components=3, n_directions=2, n_iterations=100)


@pytest.fixture(scope="module")
def x_MD():
    generator = torch.Generator().manual_seed(0)
    centre_KD = 6.0 * torch.randn(4, 12, generator=generator)
    spread_D = torch.linspace(3.0, 0.5, 12)
    parts = [c + spread_D * torch.randn(60, 12, generator=generator) for c in centre_KD]
    return torch.cat(parts) + 2.0


def fitted_as(x_MD, name, **changes):
    return fit_transforms(x_MD, replace(OPTIONS, transforms=["none", name], **changes), 0)[name]


def reference(x_MD, fit_MD, own_M, own_fit_M, n_removed):
    """Each cluster's mean and leading right singular vectors, one row at a time."""
    result = []
    for x_D, k in zip(x_MD, own_M, strict=True):
        cluster = fit_MD[own_fit_M == k]
        mean_D = cluster.mean(axis=0)
        direction_RD = np.linalg.svd(cluster - mean_D, full_matrices=False)[2][:n_removed]
        y_D = x_D - mean_D
        for v_D in direction_RD:
            y_D = y_D - (y_D @ v_D) * v_D
        result.append(y_D)
    return np.array(result)


def nearest(x_MD, anchor_KD):
    return ((x_MD[:, None] - anchor_KD[None]) ** 2).sum(axis=2).argmin(axis=1)


@pytest.mark.parametrize(("name", "n_removed"), [("kmeans_mean", 0), ("kmeans_mean_pca", 3)])
def test_clusters_against_numpy(x_MD, name, n_removed):
    fitted = fitted_as(x_MD, name)
    fit_MD = x_MD.double().numpy()
    anchor_KD = fitted.stats.anchor_KD.double().numpy()
    own_fit_M = nearest(fit_MD, anchor_KD)
    for k in range(4):  # what k-means converges to: each anchor is the mean of its rows
        np.testing.assert_allclose(fit_MD[own_fit_M == k].mean(axis=0), anchor_KD[k], atol=1e-4)
    new_MD = torch.randn(40, 12, generator=torch.Generator().manual_seed(9)) * 6.0
    own_M = nearest(new_MD.double().numpy(), anchor_KD)
    expected_MD = reference(new_MD.double().numpy(), fit_MD, own_M, own_fit_M, n_removed)
    np.testing.assert_allclose(fitted(new_MD).numpy(), expected_MD, atol=1e-4)
    assert fitted.facts["directions_removed"] == 4 * n_removed
    assert fitted.facts["n_clusters"] == 4


def test_a_row_of_a_mixture_belongs_to_the_likeliest_component(x_MD):
    fitted = fitted_as(x_MD, "gmm_mean_pca")
    mixture = fitted.nearest.keywords["mixture"]
    mean_KD, variance_KD, log_weight_K = (part.double().numpy() for part in mixture)
    fit_MD = x_MD.double().numpy()
    joint_MK = norm.logpdf(fit_MD[:, None], mean_KD, np.sqrt(variance_KD)).sum(axis=2)
    own_M = (joint_MK + log_weight_K).argmax(axis=1)
    expected_MD = reference(fit_MD, fit_MD, own_M, own_M, 3)
    np.testing.assert_allclose(fitted(x_MD).numpy(), expected_MD, atol=1e-4)


@pytest.mark.parametrize(("name", "n_removed"), [("mean", 0), ("mean_pca", 2)])
def test_without_clusters_against_scikit_learn(x_MD, name, n_removed):
    fitted = fitted_as(x_MD, name)
    new_MD = x_MD[:30] * 1.5
    pca = PCA(n_components=2).fit(x_MD.numpy())
    centred_MD = new_MD.numpy() - pca.mean_
    basis_RD = pca.components_[:n_removed]
    expected_MD = centred_MD - centred_MD @ basis_RD.T @ basis_RD
    np.testing.assert_allclose(fitted(new_MD).numpy(), expected_MD, atol=1e-4)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe])
def test_a_row_does_not_depend_on_its_batch_mates(x_MD, name):
    fitted = fitted_as(x_MD, name)
    alone_MD = torch.cat([fitted(x_D[None]) for x_D in x_MD[:20]])
    torch.testing.assert_close(fitted(x_MD)[:20], alone_MD, atol=1e-5, rtol=0)


def test_a_small_cluster_is_not_emptied():
    generator = torch.Generator().manual_seed(1)
    far_MD = 100.0 + torch.randn(5, 12, generator=generator)
    x_MD = torch.cat([torch.randn(200, 12, generator=generator), far_MD])
    fitted = fitted_as(x_MD, "kmeans_mean_pca", n_clusters=2)
    assert fitted.facts["smallest_cluster"] == 5
    assert fitted.facts["directions_removed"] == 3 + 1  # rho · (5 − 1)
    assert fitted(far_MD).norm(dim=1).min() > 0.5


def test_shapes_of_known_clouds():
    cross = torch.cat([torch.eye(8), -torch.eye(8)])
    found = shape_of(cross)
    assert found["n_rows"] == 16
    assert found["rms_norm"] == pytest.approx(1.0)
    assert found["isoscore"] == pytest.approx(1.0)
    assert found["ln_partition"] == pytest.approx(0.0, abs=1e-6)
    assert found["mean_cosine"] == pytest.approx(-1 / 15)
    line = torch.cat([torch.full((8, 1), 3.0), torch.zeros(8, 1)], dim=1)
    found = shape_of(line)  # all rows (3, 0): F is N·e³, N·e⁻³ and N
    assert found["ln_partition"] == pytest.approx(-6.0, abs=1e-5)
    assert found["partition"] == pytest.approx(math.exp(-6.0), rel=1e-4)
    assert found["chance_low"] <= found["chance"] <= found["chance_high"] <= 0


def test_chance_is_left_out_beyond_its_table():
    assert shape_of(torch.ones(3, 9000))["chance"] is None
