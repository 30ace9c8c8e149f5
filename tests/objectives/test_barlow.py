"""Barlow Twins against a loop over coordinates and BatchNorm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isotrain.objectives.barlow import Barlow, barlow


def cloud(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * 2.0 + 0.3


def by_loop(x, y, off=5e-3, scale=0.025, eps=1e-5):
    n, d = x.shape
    a, b = ((r - r.mean(0)) / np.sqrt(r.var(0) + eps) for r in (x.numpy(), y.numpy()))
    total = 0.0
    for i in range(d):
        for j in range(d):
            r = sum(a[k, i] * b[k, j] for k in range(n)) / n
            total += (1.0 - r) ** 2 if i == j else off * r**2
    return scale * total


@pytest.mark.parametrize(("n", "d"), [(2, 3), (9, 4), (4, 9)])
def test_equals_the_loop_and_batch_normalised_views(n, d):
    x, y = cloud(n, d, seed=n), cloud(n, d, seed=n + 1)
    assert barlow(x, y).item() == pytest.approx(by_loop(x, y), rel=1e-11)
    assert barlow(x.float(), y.float()).item() == pytest.approx(by_loop(x, y), rel=1e-5)
    found = barlow(x, y, 0.5, 2.0, 0.1).item()
    assert found == pytest.approx(by_loop(x, y, 0.5, 2.0, 0.1), rel=1e-11)
    normal = torch.nn.BatchNorm1d(d, affine=False).double()
    difference = (normal(x).T @ normal(y) / n - torch.eye(d)).square()
    expected = 0.025 * (difference.trace() + 5e-3 * (difference.sum() - difference.trace()))
    assert barlow(x, y).item() == pytest.approx(expected.item(), rel=1e-11)


def test_placed_points():
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]) * 50.0
    assert barlow(x, x).item() == pytest.approx(0.0, abs=1e-6)
    assert barlow(x, -x).item() == pytest.approx(0.025 * 8.0, rel=1e-6)
    one = x[:, :1].repeat(1, 3)
    assert barlow(one, one).item() == pytest.approx(0.025 * 5e-3 * 6, rel=1e-3)


def test_invariances():
    x, y = cloud(8, 5), cloud(8, 5, seed=1)
    expected = barlow(x, y).item()
    order, columns = torch.tensor([3, 1, 0, 2, 7, 6, 4, 5]), torch.tensor([4, 2, 0, 1, 3])
    moved = [(rows + shift)[order][:, columns] for rows, shift in ((y, 7.0), (x, -3.0))]
    assert barlow(*moved).item() == pytest.approx(expected, rel=1e-11)
    scaled = x * torch.linspace(1.0, 50.0, 5, dtype=torch.float64)
    assert barlow(scaled, y).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["one row", "equal rows"])
def test_without_scatter_the_loss_is_zero_and_counted(kind):
    x = (cloud(1, 3) if kind == "one row" else cloud(1, 3).repeat(6, 1)).requires_grad_()
    y = cloud(len(x), 3, seed=1).requires_grad_()
    objective = Barlow(weight=1.0)
    loss = objective([[x], [y]], torch.zeros(len(x)))
    loss.backward()
    assert loss.item() == 0.0
    assert objective.counters["undefined"].item() == 1.0
    assert x.grad.abs().max().item() == y.grad.abs().max().item() == 0.0
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        barlow(cloud(1, 3), cloud(1, 3))


def test_the_objective_passes_its_options_on():
    vectors = cloud(12, 3).reshape(6, 2, 3)
    objective = Barlow(weight=1.0, positives="pair", off_diagonal_weight=0.3, scale=1.5, eps=0.2)
    expected = by_loop(vectors[:, 0], vectors[:, 1], 0.3, 1.5, 0.2)
    assert objective([[vectors]], torch.zeros(6)).item() == pytest.approx(expected, rel=1e-11)
    assert (objective.n_views, objective.needs) == (1, "two_vectors")
    with pytest.raises(ValueError, match="scale must be above 0"):
        Barlow(weight=1.0, scale=0.0)


def test_steps_bring_the_correlation_to_the_identity():
    x, y = torch.nn.Parameter(cloud(30, 4)), cloud(30, 4, seed=1)
    values = []
    for _ in range(6):
        loss = barlow(x, y)
        values.append(loss.item())
        (gradient,) = torch.autograd.grad(loss, x)
        x.data -= 500.0 * gradient
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * values[0]
