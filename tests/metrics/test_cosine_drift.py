"""Cosine drift against the loop over rows."""

import math

import pytest
import torch

from isotrain.metrics.cosine_drift import cosine_drift
from tests.metrics.clouds import cloud


def by_hand(x, y):
    cosines = [float(a @ b) / float(a.norm() * b.norm()) for a, b in zip(x, y, strict=True)]
    return 1.0 - sum(cosines) / len(cosines)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 5), (20, 8), (9, 40)])
def test_equals_the_loop_over_rows(n, d):
    x, y = cloud(n, d, seed=1, mean=0.5), cloud(n, d, seed=2, mean=0.5)
    assert cosine_drift(x, y).item() == pytest.approx(by_hand(x, y), abs=1e-12)


@pytest.mark.parametrize("angle", [1.0, 1e-3, 1e-6, 1e-9])
def test_a_turn_by_an_angle_keeps_its_digits(angle):
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    assert cosine_drift(x, y).item() == pytest.approx(2.0 * math.sin(angle / 2) ** 2, rel=1e-7)


def test_zero_rows():
    zero, one = torch.zeros(1, 3), torch.tensor([[0.0, 2.0, 0.0]])
    assert cosine_drift(zero, one).item() == 1.0
    assert cosine_drift(one, zero).item() == 1.0
    assert cosine_drift(zero, zero).item() == 0.0
    mixed = cosine_drift(torch.cat([zero, one, -one]), torch.cat([one, one, one]))
    assert mixed.item() == pytest.approx(1.0)  # (1 + 0 + 2)/3


def test_constant_rows_and_a_shared_cone():
    x = torch.full((9, 4), 0.1)
    assert cosine_drift(x, x * 3.0).item() == pytest.approx(0.0, abs=1e-14)
    free = cosine_drift(cloud(50, 8, seed=3), cloud(50, 8, seed=4)).item()
    cone = cosine_drift(cloud(50, 8, seed=3, mean=4_000.0), cloud(50, 8, seed=4, mean=4_000.0))
    assert free > 0.8
    expected = by_hand(cloud(50, 8, seed=3, mean=4_000.0), cloud(50, 8, seed=4, mean=4_000.0))
    assert cone.item() == pytest.approx(expected, abs=1e-14)
    assert 0.0 < cone.item() < 1e-6


def test_gradient_when_asked():
    x, y = cloud(5, 3, seed=7).requires_grad_(), cloud(5, 3, seed=8).requires_grad_()
    assert torch.autograd.gradcheck(cosine_drift, (x, y))
    zero = torch.zeros(2, 3, requires_grad=True)
    cosine_drift(zero, torch.ones(2, 3)).backward()
    assert bool(torch.isfinite(zero.grad).all())
