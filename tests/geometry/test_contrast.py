"""Kernels of contrastive and ranking losses against loops in plain Python."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.contrast import contrast, ranking

light = settings(max_examples=25)
numbers = st.floats(-30, 30, allow_nan=False, width=32)


def logits_of(n, m, seed=0, dtype=torch.float64):
    return torch.randn(n, m, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * 3


def contrast_loop(logits, decoupled):
    total = 0.0
    for i, row in enumerate(logits.tolist()):
        summed = sum(math.exp(x) for j, x in enumerate(row) if not (decoupled and j == i))
        total += math.log(summed) - row[i]
    return total / len(logits)


def ranking_loop(scores, labels, scale):
    total = 1.0
    for s_i, y_i in zip(scores, labels, strict=True):
        for s_j, y_j in zip(scores, labels, strict=True):
            if y_i < y_j:
                total += math.exp(scale * (s_i - s_j))
    return math.log(total)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 2), (5, 5), (3, 11)])
def test_contrast_equals_the_loop(n, m, decoupled):
    x = logits_of(n, m, seed=m)
    expected = contrast_loop(x, decoupled)
    assert contrast(x, decoupled).item() == pytest.approx(expected, abs=1e-12)
    assert contrast(x.float(), decoupled).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("decoupled", [False, True])
def test_contrast_has_the_gradient_that_differences_have(decoupled):
    x = logits_of(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: contrast(y, decoupled), x)


@given(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=2, max_size=4), numbers)
@light
def test_contrast_ignores_a_shift_of_all_logits_of_an_anchor(rows, shift):
    x = torch.tensor(rows, dtype=torch.float64)
    moved = x.clone()
    moved[0] += shift
    for decoupled in (False, True):
        assert contrast(moved, decoupled).item() == pytest.approx(
            contrast(x, decoupled).item(), abs=1e-9
        )
    assert contrast(x).item() >= max(0.0, contrast(x, decoupled=True).item())


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


def test_ranking_of_equal_scores_counts_the_ordered_pairs():
    labels = torch.tensor([0, 0, 1, 2])  # 2 + 2 + 1 ordered pairs
    assert ranking(torch.full((4,), 0.3), labels, 20.0).item() == pytest.approx(math.log(6))


@pytest.mark.parametrize("labels", [torch.tensor([2, 2, 2]), torch.full((3,), 0.7)])
def test_ranking_of_equal_labels_is_zero_with_zero_gradient(labels):
    scores = torch.tensor([0.1, 0.9, -0.4], requires_grad=True)
    loss = ranking(scores, labels, 20.0)
    loss.backward()
    assert loss.item() == 0.0
    assert scores.grad.tolist() == [0.0, 0.0, 0.0]


def test_ranking_has_the_gradient_that_differences_have():
    scores = logits_of(1, 5)[0].requires_grad_()
    labels = torch.tensor([0.0, 2.5, 2.5, 1.0, 4.0])
    assert torch.autograd.gradcheck(lambda s: ranking(s, labels, 0.7), scores)
