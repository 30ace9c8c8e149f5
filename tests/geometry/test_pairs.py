"""Unit vectors, pairwise cosines and potentials, contrastive and ranking kernels, against loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry import cosine
from isotrain.geometry.cosine import (
    contrast,
    log_mean_potential,
    mean_pairwise_cosine,
    ranking,
    unit_rows,
)
from tests.clouds import light, normal


def cloud(n, d, seed=0):
    return unit_rows(normal(n, d, seed=seed, mean=0.4))


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_unit_rows_have_length_one_at_any_scale(scale):
    x = normal(20, 5)
    torch.testing.assert_close(unit_rows(x * scale), x / x.norm(dim=1, keepdim=True))


def test_float16_lengths_do_not_overflow():
    unit = unit_rows(torch.full((2, 64), 60_000.0, dtype=torch.float16))
    torch.testing.assert_close(unit, torch.full((2, 64), 0.125, dtype=torch.float16))


def test_a_zero_row_stays_zero_with_a_finite_gradient():
    x = normal(4, 3)
    x[1] = 0.0
    x.requires_grad_()
    unit = unit_rows(x)
    assert not bool(unit[1].any())
    mean_pairwise_cosine(x).backward()
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("block", [1, 8 * 40 * 7, 8 * 40 * 39, 1 << 30])
def test_blocks_change_nothing_forwards_or_backwards(block, monkeypatch):
    x = cloud(40, 5, seed=1).requires_grad_()
    expected = log_mean_potential(x, 2.0)
    (gradient,) = torch.autograd.grad(expected, x)
    monkeypatch.setattr(cosine, "BLOCK_BYTES", block)
    found = log_mean_potential(x, 2.0)
    assert found.item() == pytest.approx(expected.item(), rel=1e-13)
    again = torch.autograd.grad(found, x)[0]
    torch.testing.assert_close(again, gradient, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("block", [64, 1 << 25])
def test_the_gradient_is_right(block, monkeypatch):
    monkeypatch.setattr(cosine, "BLOCK_BYTES", block)
    x = cloud(7, 3, seed=2)
    x[4] = x[1]  # a pair at distance zero
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: log_mean_potential(x, 2.0), x)


@pytest.mark.parametrize("t", [500.0, 1e5])
def test_sharp_potentials_do_not_underflow(t):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    # Two pairs at squared distance 2 and one at 4, of three.
    expected = -2.0 * t + math.log(2.0 / 3.0)
    assert log_mean_potential(x, t).item() == pytest.approx(expected, rel=1e-12)


def ranking_loop(scores, labels, scale):
    total = 1.0
    for s_i, y_i in zip(scores, labels, strict=True):
        for s_j, y_j in zip(scores, labels, strict=True):
            if y_i < y_j:
                total += math.exp(scale * (s_i - s_j))
    return math.log(total)


@pytest.mark.parametrize("decoupled", [False, True])
def test_one_candidate_is_zero_with_zero_gradient(decoupled):
    x = torch.tensor([[20.0]], requires_grad=True)
    loss = contrast(x, decoupled)
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.item() == 0.0


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_large_logits_stay_finite(size):
    x = (torch.eye(3) * -size).requires_grad_()
    loss = contrast(x)
    loss.backward()
    assert loss.item() == pytest.approx(size + math.log(2), rel=1e-6)
    assert bool(torch.isfinite(x.grad).all())
    scores = torch.tensor([size, 0.0], requires_grad=True)
    loss = ranking(scores, torch.tensor([0, 1]), 20.0)
    loss.backward()
    assert loss.item() == pytest.approx(20 * size, rel=1e-6)
    assert scores.grad.tolist() == [20.0, -20.0]


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 3)), min_size=1, max_size=7),
    st.floats(0.1, 30),
)
@light
def test_ranking_equals_the_loop(pairs, scale):
    scores, labels = zip(*pairs, strict=True)
    found = ranking(
        torch.tensor(scores, dtype=torch.float64), torch.tensor(labels, dtype=torch.int64), scale
    )
    assert found.item() == pytest.approx(ranking_loop(scores, labels, scale), abs=1e-10)


@pytest.mark.parametrize("labels", [torch.tensor([2, 2, 2]), torch.full((3,), 0.7)])
def test_ranking_of_equal_labels_is_zero_with_zero_gradient(labels):
    scores = torch.tensor([0.1, 0.9, -0.4], requires_grad=True)
    loss = ranking(scores, labels, 20.0)
    loss.backward()
    assert loss.item() == 0.0
    assert scores.grad.tolist() == [0.0, 0.0, 0.0]
