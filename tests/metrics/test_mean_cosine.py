"""Mean cosine against the double loop over pairs."""

import math

import pytest
import torch

from isotrain.metrics.mean_cosine import mean_cosine
from tests.metrics.clouds import cloud


def double_loop(x):
    """The definition, pair by pair; a zero row has cosine 0."""
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            length = float(x[i].norm() * x[j].norm())
            if i != j and length > 0:
                total += float(x[i] @ x[j]) / length
    return total / (len(x) * (len(x) - 1))


@pytest.mark.parametrize(
    ("n", "d", "mean"), [(2, 1, 0.0), (5, 3, 0.0), (20, 8, 1.0), (9, 40, -3.0), (3, 2, 9.0)]
)
def test_equals_the_double_loop(n, d, mean):
    x = cloud(n, d, seed=n, mean=mean)
    assert mean_cosine(x).item() == pytest.approx(double_loop(x), abs=1e-12)


def test_ends_of_the_range():
    assert mean_cosine(torch.ones(10, 3)).item() == pytest.approx(1.0, abs=1e-14)
    assert mean_cosine(torch.eye(6)).item() == 0.0
    simplex = torch.eye(5, dtype=torch.float64) - 0.2
    assert mean_cosine(simplex).item() == pytest.approx(-0.25, abs=1e-14)


def test_a_zero_row_counts_as_orthogonal():
    x = cloud(6, 4, seed=1, mean=2.0)
    x[2] = 0.0
    assert mean_cosine(x).item() == pytest.approx(double_loop(x), abs=1e-12)
    assert mean_cosine(torch.zeros(4, 3)).item() == 0.0


def test_closed_form_of_a_cone():
    # Unit rows cos(a)·e0 ± sin(a)·e1, half each way: pairs are 1 or cos(2a).
    angle, half = 0.4, 10
    row = torch.tensor([[math.cos(angle), math.sin(angle)], [math.cos(angle), -math.sin(angle)]])
    x = row.double().repeat(half, 1)
    n = 2 * half
    expected = ((half - 1) + half * math.cos(2 * angle)) / (n - 1)
    assert mean_cosine(x).item() == pytest.approx(expected, abs=1e-7)
