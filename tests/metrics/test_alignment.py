"""Alignment against the loop over pairs."""

import math

import pytest
import torch

from isotrain.metrics.alignment import alignment
from tests.metrics.clouds import cloud


def by_hand(x, y, alpha):
    total = 0.0
    for a, b in zip(x, y, strict=True):
        total += float((a / a.norm() - b / b.norm()).norm()) ** alpha
    return total / len(x)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 6), (20, 8), (9, 40)])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.5])
def test_equals_the_loop_over_pairs(n, d, alpha):
    x, y = cloud(n, d, seed=1, mean=0.5), cloud(n, d, seed=2, mean=0.5)
    found = alignment(x, y, alpha=alpha).item()
    assert found == pytest.approx(by_hand(x, y, alpha), abs=1e-12)


def test_alpha_two_is_two_minus_two_cosines():
    x, y = cloud(30, 5, seed=3), cloud(30, 5, seed=4)
    cosine = torch.nn.functional.cosine_similarity(x, y).mean().item()
    assert alignment(x, y).item() == pytest.approx(2.0 - 2.0 * cosine, abs=1e-12)


@pytest.mark.parametrize("angle", [0.4, 1e-5, math.pi])
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_closed_form_of_an_angle(angle, alpha):
    x = torch.tensor([[3.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    expected = (2.0 * math.sin(angle / 2.0)) ** alpha
    assert alignment(x, y, alpha=alpha).item() == pytest.approx(expected, rel=1e-9)


def test_zero_rows_are_at_distance_one():
    zero, one = torch.zeros(1, 3), torch.tensor([[0.0, 2.0, 0.0]])
    for alpha in (0.5, 2.0, 3.0):
        assert alignment(zero, one, alpha=alpha).item() == 1.0
        assert alignment(zero, zero, alpha=alpha).item() == 0.0


def test_constant_rows_and_a_mean_of_norm_16000():
    x = torch.full((9, 4), 0.1)
    assert alignment(x, x * 2.0).item() == pytest.approx(0.0, abs=1e-14)
    far, other = cloud(20, 16, seed=5, mean=4_000.0), cloud(20, 16, seed=6, mean=4_000.0)
    assert alignment(far, other).item() == pytest.approx(by_hand(far, other, 2.0), rel=1e-9)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_gradient(alpha):
    x, y = cloud(5, 3, seed=9).requires_grad_(), cloud(5, 3, seed=10).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: alignment(x, y, alpha=alpha), (x, y))
    same = torch.cat([cloud(3, 3, seed=11), torch.zeros(1, 3)]).requires_grad_()
    alignment(same, same.detach().clone(), alpha=alpha).backward()
    assert same.grad.tolist() == [[0.0] * 3] * 4


def test_errors():
    x = cloud(4, 3)
    for other in (cloud(5, 3), cloud(4, 2)):
        with pytest.raises(ValueError, match=r"each row of x, \(4, 3\), got .*repeat rows"):
            alignment(x, other)
    for alpha in (0.0, -2.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="alpha must be positive"):
            alignment(x, x, alpha=alpha)
    bad = x.clone()
    bad[3] = float("inf")
    for first, second in ((x, bad), (bad, x)):
        with pytest.raises(ValueError, match="row 3"):
            alignment(first, second)
