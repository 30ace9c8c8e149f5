"""Linear CKA against its Gram and feature forms, and the U-statistic against tuples of points."""

from functools import partial

import numpy as np
import pytest
import torch

from isotrain.metrics.linear_cka import linear_cka
from tests import clouds

SHAPES = [(2, 1, 1), (5, 3, 4), (30, 8, 8), (10, 40, 60), (40, 100, 3), (200, 5, 20)]
cloud = partial(clouds.cloud, low=0.05, high=3.0)


def pair(n, d, e, seed=0):
    x = cloud(n, d, seed, mean=2.0)
    return x, x[:, :1] + cloud(n, e, seed + 1, mean=-1.0)


def gram_form(x, y):
    """tr(KHLH)/√(tr(KHKH)·tr(LHLH)), as Kornblith et al. write it."""
    n = len(x)
    h = np.eye(n) - 1.0 / n
    k, m = x.numpy() @ x.numpy().T, y.numpy() @ y.numpy().T

    def hsic(a, b):
        return np.trace(a @ h @ b @ h)

    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def feature_form(x, y):
    x, y = (z.numpy() - z.numpy().mean(axis=0) for z in (x, y))
    return np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


def unbiased_hsic(x, y):
    """Song et al. 2012: Gram matrices without their diagonals."""
    n = len(x)
    k, m = x.numpy() @ x.numpy().T, y.numpy() @ y.numpy().T
    np.fill_diagonal(k, 0.0)
    np.fill_diagonal(m, 0.0)
    total = np.trace(k @ m) + k.sum() * m.sum() / ((n - 1) * (n - 2))
    return (total - 2.0 / (n - 2) * (k @ m).sum()) / (n * (n - 3))


def debiased_form(x, y):
    return unbiased_hsic(x, y) / np.sqrt(unbiased_hsic(x, x) * unbiased_hsic(y, y))


@pytest.mark.parametrize(("n", "d", "e"), SHAPES)
def test_equals_both_published_forms(n, d, e):
    x, y = pair(n, d, e, seed=n)
    found = linear_cka(x, y).item()
    assert found == pytest.approx(gram_form(x, y), abs=1e-11)
    assert found == pytest.approx(feature_form(x, y), abs=1e-11)


@pytest.mark.parametrize(("n", "d", "e"), [(4, 2, 3), *SHAPES[1:]])
def test_debiased_equals_the_gram_form(n, d, e):
    x, y = pair(n, d, e, seed=n)
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)  # the Gram form loses digits to a mean
    assert linear_cka(x, y, debiased=True).item() == pytest.approx(debiased_form(x, y), abs=1e-9)


@pytest.mark.parametrize(("n", "d", "e"), [(50, 50, 50), (200, 100, 50), (33, 256, 256)])
def test_bias_of_unrelated_clouds_and_its_removal(n, d, e):
    biased, debiased = [], []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, d, generator=generator, dtype=torch.float64)
        y = torch.randn(n, e, generator=generator, dtype=torch.float64)
        biased.append(linear_cka(x, y).item())
        debiased.append(linear_cka(x, y, debiased=True).item())
    law = np.sqrt(d * e / ((n - 1 + d) * (n - 1 + e)))
    assert np.mean(biased) == pytest.approx(law, rel=0.03)
    assert np.mean(debiased) == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
@pytest.mark.parametrize("debiased", [False, True])
def test_a_cloud_without_scatter_is_like_nothing(value, debiased):
    x, equal = cloud(101, 3, seed=2), torch.full((101, 4), value, dtype=torch.float64)
    assert linear_cka(x, equal, debiased).item() == 0.0
    assert linear_cka(equal, x, debiased).item() == 0.0
    assert linear_cka(equal, equal, debiased).item() == 0.0


def test_a_simplex_has_no_debiased_product():
    x = cloud(6, 3, seed=3)  # all rows of eye(6) are equally far apart
    assert linear_cka(torch.eye(6), x, debiased=True).item() == 0.0
    assert linear_cka(x, torch.eye(6), debiased=True).item() == 0.0
    assert linear_cka(torch.eye(6), x).item() > 0.0
