"""VICReg against loops over coordinates, and its unbiased covariances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from isotrain.objectives.vicreg import VICReg, vicreg

ONLY_COVARIANCE = {"invariance_weight": 0.0, "variance_weight": 0.0}


def cloud(n, d, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale + 0.3


def by_loop(x, y, invariance=25.0, variance=25.0, covariance=1.0, eps=1e-4):
    d = x.shape[1]
    total = invariance * float(((x - y) ** 2).mean())
    for rows in (x.numpy(), y.numpy()):
        matrix = np.cov(rows, rowvar=False)
        for i in range(d):
            total += variance * max(0.0, 1.0 - np.sqrt(matrix[i, i] + eps)) / d
            for j in range(d):
                total += covariance * (matrix[i, j] ** 2 / d if i != j else 0.0)
    return total


def quadruples(x):
    """Σ_{i≠j} σ_ij² over all ordered choices of four distinct rows."""
    rows = x.numpy()
    found = []
    for a, b, c, e in itertools.permutations(range(len(rows)), 4):
        first, second = rows[a] - rows[b], rows[c] - rows[e]
        product = np.outer(first, first) * np.outer(second, second) / 4.0
        found.append(product.sum() - np.trace(product))
    return float(np.mean(found))


@pytest.mark.parametrize(("n", "d"), [(2, 3), (9, 4), (4, 9), (40, 5)])
@pytest.mark.parametrize("scale", [0.3, 1.5])
def test_equals_the_loop(n, d, scale):
    x, y = cloud(n, d, seed=n, scale=scale), cloud(n, d, seed=n + 1, scale=scale)
    expected = by_loop(x, y)
    assert vicreg(x, y).item() == pytest.approx(expected, rel=1e-11)
    assert vicreg(x.float(), y.float()).item() == pytest.approx(expected, rel=1e-5)
    expected = by_loop(x, y, 2.0, 3.0, 0.5, 0.01)
    assert vicreg(x, y, 2.0, 3.0, 0.5, 0.01).item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("n", "d"), [(4, 3), (6, 2), (5, 7)])
def test_unbiased_is_the_statistic_over_four_distinct_rows(n, d):
    x, y = cloud(n, d, seed=n), cloud(n, d, seed=n + 5)
    found = vicreg(x, y, **ONLY_COVARIANCE, unbiased=True).item()
    assert found == pytest.approx((quadruples(x) + quadruples(y)) / d, abs=1e-11)


@pytest.mark.parametrize("tails", [False, True], ids=["normal", "heavy tails"])
def test_unbiased_takes_the_chance_covariance_out(tails):
    """Independent coordinates, 16 rows: the published term is about (D − 1)/(N − 1) a view."""
    n, d = 16, 64
    x = cloud(n * 200, d, seed=3) - 0.3
    if tails:
        x = x.sign() * x.abs() ** 2
    published, unbiased = [], []
    for part in x.split(n):
        published.append(vicreg(part, part, **ONLY_COVARIANCE).item() / 2)
        unbiased.append(vicreg(part, part, **ONLY_COVARIANCE, unbiased=True).item() / 2)
    variance = float(x.var(dim=0).mean())
    assert np.mean(published) == pytest.approx(variance**2 * (d - 1) / (n - 1), rel=0.1)
    error = np.std(unbiased) / np.sqrt(len(unbiased))
    assert abs(np.mean(unbiased)) < 4 * error
    assert error < 0.02 * np.mean(published)


def test_placed_points():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) * 3.0
    assert vicreg(x, x).item() == 0.0  # variances 6, no covariance
    assert vicreg(x, x + 2.0).item() == pytest.approx(100.0, rel=1e-6)
    equal = torch.ones(4, 2)
    assert vicreg(equal, equal).item() == pytest.approx(50.0 * 0.99, rel=1e-6)


@pytest.mark.parametrize(("unbiased", "least"), [(False, 2), (True, 4)])
def test_too_few_rows_count_as_undefined(unbiased, least):
    objective = VICReg(weight=1.0, unbiased=unbiased)
    for n in range(1, 6):
        x, y = (cloud(n, 3, seed).reshape(n, 1, 3).requires_grad_() for seed in (0, 1))
        loss = objective([[x], [y]], torch.zeros(n))
        loss.backward()
        assert objective.counters["undefined"].item() == float(n < least)
        assert (loss.item() == 0.0) == (n < least)
        assert bool((x.grad.abs() > 0).any()) == (n >= least)
    with pytest.raises(ValueError, match=f"at least {least} rows"):
        vicreg(cloud(least - 1, 3), cloud(least - 1, 3), unbiased=unbiased)


def test_the_objective_passes_its_options_on():
    vectors = cloud(12, 3).reshape(6, 2, 3)
    pairs = VICReg(weight=1.0, positives="pair", invariance_weight=2.0, variance_weight=3.0)
    expected = by_loop(vectors[:, 0], vectors[:, 1], 2.0, 3.0)
    assert pairs([[vectors]], torch.zeros(6)).item() == pytest.approx(expected, rel=1e-11)
    assert (pairs.n_views, pairs.needs) == (1, "two_vectors")
    last = VICReg(weight=1.0, covariance_weight=0.25, eps=0.1)
    x, y = cloud(6, 3, 5), cloud(6, 3, 6)
    expected = by_loop(x, y, covariance=0.25, eps=0.1)
    assert last([[x], [y]], torch.zeros(6)).item() == pytest.approx(expected, rel=1e-11)
    with pytest.raises(ValueError, match="eps must be above 0"):
        VICReg(weight=1.0, eps=0.0)
