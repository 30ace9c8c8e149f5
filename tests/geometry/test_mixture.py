"""Gaussian mixtures against scikit-learn, scipy and slow loops. N rows, D dimensions, K parts."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from isotrain.geometry import mixture as module
from isotrain.geometry.kmeans import kmeans
from isotrain.geometry.mixture import Mixture, fit_mixture, log_joint
from tests.clouds import normal, seeded


def cloud(n, d, k=3, seed=0, dtype=torch.float64):
    """Overlapping groups, of unequal spread in every dimension."""
    generator = seeded(seed)
    centre_KD = 1.5 * torch.randn(k, d, generator=generator, dtype=dtype)
    spread_KD = 0.2 + torch.rand(k, d, generator=generator, dtype=dtype)
    owner_N = torch.randint(0, k, (n,), generator=generator)
    noise_ND = torch.randn(n, d, generator=generator, dtype=dtype)
    return centre_KD[owner_N] + spread_KD[owner_N] * noise_ND


def any_mixture(k, d, seed=0):
    mean_KD, variance_KD = normal(k, d, seed=seed), normal(k, d, seed=seed + 1).square() + 0.1
    return Mixture(mean_KD, variance_KD, normal(k, seed=seed + 2).log_softmax(dim=0))


def of_clusters(x, k, n_rounds, **options):
    """The mixture that the clusters of k-means make."""
    owner_N = kmeans(x, k, n_iterations=n_rounds, **options).assignment_N
    groups = [x[owner_N == c] for c in range(k)]
    return Mixture(
        torch.stack([rows.mean(dim=0) for rows in groups]),
        torch.stack([rows.var(dim=0, correction=0) for rows in groups]) + floor_of(x),
        torch.tensor([len(rows) / len(x) for rows in groups], dtype=torch.float64).log(),
    )


def mixture_of(x, k, n_iterations=10, **options):
    return fit_mixture(x, kmeans(x, k, n_iterations=n_iterations, **options), n_iterations)


def responsibilities(x, mixture):
    return log_joint(x, mixture).softmax(dim=1)


def floor_of(x, floor=1e-3):
    return floor * float(x.numpy().var(axis=0).mean())


def of_scikit_learn(x, start, n_rounds, tol):
    theirs = GaussianMixture(
        len(start.anchor_KD),
        covariance_type="diag",
        reg_covar=floor_of(x),
        weights_init=start.log_weight_K.exp().numpy(),
        means_init=start.anchor_KD.numpy(),
        precisions_init=start.variance_KD.reciprocal().numpy(),
        max_iter=n_rounds,
        tol=tol,
        init_params="random",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return theirs.fit(x.numpy())


def assert_equal_to_scikit_learn(x, ours, theirs):
    near = {"atol": 1e-6, "rtol": 0}
    np.testing.assert_allclose(ours.anchor_KD.numpy(), theirs.means_, **near)
    np.testing.assert_allclose(ours.variance_KD.numpy(), theirs.covariances_, **near)
    np.testing.assert_allclose(ours.log_weight_K.exp().numpy(), theirs.weights_, **near)
    np.testing.assert_allclose(
        responsibilities(x, ours).numpy(), theirs.predict_proba(x.numpy()), **near
    )
    row_N = log_joint(x, ours).logsumexp(dim=1).numpy()
    np.testing.assert_allclose(row_N, theirs.score_samples(x.numpy()), **near)


def test_starts_from_the_clusters_of_kmeans():
    x = cloud(150, 3, 3, seed=5)
    ours = mixture_of(x, 3, generator=seeded(7), n_iterations=0)
    wanted = of_clusters(x, 3, 0, generator=seeded(7))
    for part, expected in zip(ours, wanted, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("n", "d", "k"), [(200, 2, 3), (300, 8, 4), (60, 1, 2), (20, 40, 2)])
@pytest.mark.parametrize("n_rounds", [1, 2, 4])
def test_equals_scikit_learn_after_the_same_rounds(n, d, k, n_rounds):
    x = cloud(n, d, k, seed=n)
    ours = mixture_of(x, k, init=x[:k], n_iterations=n_rounds)
    start = of_clusters(x, k, n_rounds, init=x[:k])
    assert_equal_to_scikit_learn(x, ours, of_scikit_learn(x, start, n_rounds, tol=0.0))


@pytest.mark.parametrize("seed", range(3))
def test_ends_where_scikit_learn_ends(seed):
    x = cloud(250, 4, 3, seed=seed)
    ours = mixture_of(x, 3, init=x[:3], n_iterations=500)
    theirs = of_scikit_learn(x, of_clusters(x, 3, 500, init=x[:3]), 500, tol=1e-4)
    assert theirs.converged_
    assert theirs.n_iter_ > 4
    assert_equal_to_scikit_learn(x, ours, theirs)


@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (7, 3, 2), (5, 30, 4)])
def test_log_joint_equals_scipy(n, d, k):
    x, mixture = cloud(n, d, seed=3), any_mixture(k, d, seed=4)
    found = log_joint(x, mixture)
    assert found.shape == (n, k)
    for c in range(k):
        density = multivariate_normal(mixture.anchor_KD[c], np.diag(mixture.variance_KD[c]))
        expected = mixture.log_weight_K[c].item() + np.atleast_1d(density.logpdf(x.numpy()))
        np.testing.assert_allclose(found[:, c].numpy(), expected, rtol=1e-10, atol=1e-10)


def test_log_joint_carries_a_gradient():
    x = cloud(4, 3, seed=6).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: log_joint(rows, any_mixture(2, 3)), x)


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_far_from_the_origin_in_float32(shift):
    x = (cloud(400, 3, 3, seed=9, dtype=torch.float32) * 64.0).round() / 64.0
    assert torch.equal((x + shift) - shift, x)  # rows on a grid lose nothing by the shift
    near = mixture_of(x, 3, generator=seeded(2))
    far = mixture_of(x + shift, 3, generator=seeded(2))
    share_NK = responsibilities(x, near)
    assert (share_NK.max(dim=1).values < 0.99).float().mean() > 0.02  # shared rows among them
    torch.testing.assert_close(responsibilities(x + shift, far), share_NK, rtol=0, atol=0.01)
    torch.testing.assert_close(far.variance_KD, near.variance_KD, rtol=1e-3, atol=0)


def test_an_empty_component_keeps_its_mean_and_is_counted_as_one_row():
    x = cloud(30, 2, seed=10)
    far_KD = torch.tensor([[0.0, 0.0], [1e6, -1e6]], dtype=torch.float64)
    found = mixture_of(x, 2, init=far_KD)
    torch.testing.assert_close(found.anchor_KD[1], far_KD[1])
    torch.testing.assert_close(found.anchor_KD[0], x.mean(dim=0))
    variance_D = x.var(dim=0, correction=0) + floor_of(x)
    torch.testing.assert_close(found.variance_KD, variance_D.expand(2, 2))
    expected_K = torch.tensor([30 / 31, 1 / 31], dtype=torch.float64)
    torch.testing.assert_close(found.log_weight_K.exp(), expected_K)
    single = Mixture(*(part.float() for part in found))
    own_N, exact_N = log_joint(x.float(), single)[:, 0], log_joint(x, found)[:, 0]
    torch.testing.assert_close(own_N.double(), exact_N, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_equal_rows(n, value, dtype):
    x = torch.full((n, 5), value, dtype=dtype)
    found = mixture_of(x, 3, generator=seeded(0))
    torch.testing.assert_close(found.anchor_KD, x[:1].expand(3, 5))
    torch.testing.assert_close(found.variance_KD, torch.full((3, 5), 1e-3, dtype=dtype))
    elsewhere_ND = x + torch.tensor([3.0, -1.0, 0.0, 0.0, 0.5], dtype=dtype)
    assert bool(torch.isfinite(log_joint(elsewhere_ND, found)).all())


@pytest.mark.parametrize("n_equal", [3, 11, 33, 41, 47])
def test_no_variance_is_below_the_floor_by_rounding(n_equal, monkeypatch):
    monkeypatch.setattr(module, "FLOOR", 1e-12)
    x = torch.tensor([[1234.567, 0.1], [-987.654, 0.3], [31.4159, 7.1]]).repeat(n_equal, 1)
    found = mixture_of(x, 3, generator=seeded(0))
    assert found.variance_KD.min().item() >= floor_of(x.double(), 1e-12) * (1.0 - 1e-5)
    assert found.variance_KD.max().item() < 1e-5 * x.var().item()
    torch.testing.assert_close(found.log_weight_K.exp(), torch.full((3,), 1.0 / 3.0))
