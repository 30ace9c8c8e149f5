"""Alignment against the loop over pairs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.metrics.alignment import alignment

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


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


@given(st.integers(1, 25), st.integers(2, 8), st.floats(0.5, 4.0), st.integers(0, 10_000))
@light
def test_invariances_and_range(n, d, alpha, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = cloud(n, d, seed), cloud(n, d, seed + 1, mean=0.3)
    rotation, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    value = alignment(x, y, alpha=alpha).item()
    assert 0.0 <= value <= 2.0**alpha + 1e-12
    length_N1 = 10.0 ** (6.0 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 3.0)
    order = torch.randperm(n, generator=generator)
    for first, second in (
        (y, x),
        (x @ rotation, y @ rotation),
        (x * length_N1, y * 1e200),
        (x[order], y[order]),
    ):
        assert alignment(first, second, alpha=alpha).item() == pytest.approx(value, abs=1e-11)
    assert alignment(x, x, alpha=alpha).item() == 0.0
    assert alignment(x, -x, alpha=alpha).item() == pytest.approx(2.0**alpha, abs=1e-11)


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


def test_a_step_down_the_gradient_aligns():
    x, y = cloud(8, 4, seed=12).requires_grad_(), cloud(8, 4, seed=13)
    before = alignment(x, y)
    before.backward()
    assert alignment(x.detach() - 0.5 * x.grad, y).item() < before.item()


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
