"""Uniformity as a loss against a double loop and the metric."""

from __future__ import annotations

import math

import pytest
import torch

from isotrain.metrics.uniformity import uniformity as measured
from isotrain.objectives.uniformity import Uniformity, uniformity


def cloud(n, d, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


def by_loop(x, t):
    potentials = [
        (-t * (x[i] / x[i].norm() - x[j] / x[j].norm()).square().sum()).exp()
        for i in range(len(x))
        for j in range(i)
    ]
    return torch.stack(potentials).mean().log()


@pytest.mark.parametrize(("n", "d"), [(2, 3), (9, 4), (5, 20)])
@pytest.mark.parametrize("t", [0.5, 2.0, 7.0])
def test_value_and_gradient_are_those_of_the_double_loop(n, d, t):
    x = cloud(n, d, seed=n).requires_grad_()
    expected, found = by_loop(x, t), uniformity(x, t)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
    assert found.item() == pytest.approx(measured(x.detach(), t=t).item(), abs=1e-12)
    assert uniformity(x.float(), t).item() == pytest.approx(expected.item(), abs=2e-6 * max(t, 1))
    both = [torch.autograd.grad(loss, x)[0] for loss in (expected, found)]
    torch.testing.assert_close(both[1], both[0], rtol=1e-9, atol=1e-12)


def test_placed_points():
    assert uniformity(torch.ones(5, 3)).item() == pytest.approx(0.0, abs=1e-6)
    n = 4  # a simplex has the least value
    simplex = torch.eye(n, dtype=torch.float64) - 1 / n
    assert uniformity(simplex).item() == pytest.approx(-4 * n / (n - 1), abs=1e-12)
    two = math.log((2 * math.exp(-8.0) + 1) / 3)
    line = torch.tensor([[1.0], [5.0], [-1.0]], dtype=torch.float64)
    assert uniformity(line).item() == pytest.approx(two, abs=1e-12)


def test_the_objective_averages_places_and_counts_single_rows():
    objective = Uniformity(weight=1.0, reads=("pooled", "all/tokens"), t=1.5)
    pooled, one = cloud(8, 3).reshape(4, 2, 3), cloud(1, 3).requires_grad_()
    loss = objective([[pooled, cloud(6, 3, seed=2), one]], torch.zeros(4))
    expected = (by_loop(pooled.reshape(8, 3), 1.5) + by_loop(cloud(6, 3, seed=2), 1.5)) / 3
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    assert objective.counters["undefined"].item() == 1.0
    loss.backward()
    assert one.grad.abs().max().item() == 0.0
    with pytest.raises(ValueError, match="t must be above 0"):
        Uniformity(weight=1.0, t=0.0)


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_steps_move_the_metric_in_the_direction_of_the_sign(weight):
    x = torch.nn.Parameter(cloud(30, 5, mean=1.0))
    before = measured(x.detach()).item()
    for _ in range(5):
        (gradient,) = torch.autograd.grad(weight * uniformity(x), x)
        x.data -= gradient
    assert weight * (measured(x.detach()).item() - before) < -0.05
