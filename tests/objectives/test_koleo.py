"""KoLeo against a loop and scikit-learn's nearest neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from isotrain.objectives.koleo import KoLeo, koleo


def cloud(n, d, seed=0, mean=0.3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


def by_loop(x, eps):
    unit = [row / row.norm() for row in x]
    total = 0.0
    for i, u in enumerate(unit):
        nearest = min(
            ((u - v).norm() for j, v in enumerate(unit) if j != i), key=lambda x: x.item()
        )
        total = total - (nearest + eps).log() / len(unit)
    return total


@pytest.mark.parametrize(("n", "d"), [(2, 2), (9, 4), (5, 20), (60, 3)])
@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_value_and_gradient_are_those_of_the_loop(n, d, eps):
    x = cloud(n, d, seed=n).requires_grad_()
    expected, found = by_loop(x, eps), koleo(x, eps)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
    both = [torch.autograd.grad(loss, x)[0] for loss in (expected, found)]
    torch.testing.assert_close(both[1], both[0], rtol=1e-9, atol=1e-12)
    assert koleo(x.float(), eps).item() == pytest.approx(expected.item(), abs=1e-5)


def test_equals_scikit_learn_on_many_rows():
    x = cloud(700, 24)
    unit = (x / x.norm(dim=1, keepdim=True)).numpy()
    distance = NearestNeighbors(n_neighbors=2).fit(unit).kneighbors(unit)[0][:, 1]
    assert koleo(x).item() == pytest.approx(-np.log(distance + 1e-8).mean(), abs=1e-10)


def test_placed_points():
    square = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [0.0, -1.0]])
    assert koleo(square).item() == pytest.approx(-0.5 * math.log(2.0), abs=1e-6)
    equal = torch.ones(3, 4).requires_grad_()
    loss = koleo(equal)
    assert loss.item() == pytest.approx(-math.log(1e-8), rel=1e-6)
    loss.backward()
    assert equal.grad.abs().max().item() == 0.0


def test_the_objective_averages_places_and_counts_single_rows():
    objective = KoLeo(weight=1.0, reads=("pooled", "layer_1/tokens"), eps=0.01)
    pooled, one = cloud(8, 3).reshape(4, 2, 3), cloud(1, 3).requires_grad_()
    loss = objective([[pooled, one]], torch.zeros(4))
    expected = by_loop(pooled.reshape(8, 3), 0.01).item() / 2
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert objective.counters["undefined"].item() == 1.0
    loss.backward()
    assert one.grad.abs().max().item() == 0.0
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        koleo(cloud(1, 3))
    with pytest.raises(ValueError, match="eps must be above 0"):
        KoLeo(weight=1.0, eps=0.0)


def test_steps_spread_the_rows():
    x = torch.nn.Parameter(cloud(20, 6, mean=1.0))
    before = koleo(x).item()
    for _ in range(10):
        (gradient,) = torch.autograd.grad(koleo(x), x)
        x.data -= 0.5 * gradient
    assert koleo(x).item() < before - 0.1
