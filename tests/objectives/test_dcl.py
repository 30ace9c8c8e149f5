"""Decoupled contrastive learning against a loop, and beside SimCSE."""

import math

import pytest
import torch

from isotrain.objectives.dcl import DCL, dcl
from isotrain.objectives.simcse import simcse


def cloud(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) + 0.3


def cosine(x, y):
    return float(x @ y / (x.norm() * y.norm()))


def loop(anchors, positives, negatives, memory, tau, alpha=0.0):
    total = 0.0
    for i, anchor in enumerate(anchors):
        summed = sum(math.exp(cosine(anchor, row) / tau) for row in memory)
        for j in range(len(positives)):
            if j != i:
                summed += math.exp(cosine(anchor, positives[j]) / tau)
            for negative in negatives[j]:
                weight = alpha if i == j else 0.0
                summed += math.exp(cosine(anchor, negative) / tau + weight)
        total += math.log(summed) - cosine(anchor, positives[i]) / tau
    return total / len(anchors)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("h", "m"), [(0, 0), (2, 0), (0, 5), (1, 3)])
@pytest.mark.parametrize("n", [2, 6])
def test_equals_the_loop(n, h, m, symmetric):
    x, y = cloud(n, 4), cloud(n, 4, seed=1)
    negatives, memory = cloud(n, h, 4, seed=2), cloud(m, 4, seed=3)
    expected = loop(x, y, negatives, memory, 0.2, 0.6)
    if symmetric:
        expected = (expected + loop(y, x, [[]] * n, memory, 0.2)) / 2
    options = {"temperature": 0.2, "hard_negative_weight": 0.6, "symmetric": symmetric}
    found = dcl(x, y, negatives, memory, **options)
    assert found.item() == pytest.approx(expected, abs=1e-11)
    found = dcl(x.float(), y.float(), negatives.float(), memory.float(), **options)
    assert found.item() == pytest.approx(expected, abs=1e-5)


def test_hard_negatives_weigh_as_other_negatives_by_default():
    x, y, negatives = cloud(3, 4), cloud(3, 4, seed=1), cloud(3, 2, 4, seed=2)
    for loss in (dcl, simcse):
        plain = loss(x, y, negatives, hard_negative_weight=0.0)
        assert torch.equal(loss(x, y, negatives), plain)
        assert not torch.equal(loss(x, y, negatives, hard_negative_weight=1.0), plain)
    assert dcl(x, y, negatives).item() == pytest.approx(loop(x, y, negatives, [], 0.05), abs=1e-10)


@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_is_simcse_without_the_share_of_the_positive(tau):
    """ln(e^own + rest) = ln(rest) + ln(1 + e^own/rest), anchor by anchor."""
    x, y = cloud(6, 4), cloud(6, 4, seed=1)
    for i in range(6):
        anchor, positive = x[i : i + 1], y[i : i + 1]
        others = torch.cat([y[:i], y[i + 1 :]])
        without = dcl(anchor, positive, memory_MD=others, temperature=tau).item()
        whole = simcse(anchor, positive, memory_MD=others, temperature=tau).item()
        assert whole == pytest.approx(without + math.log1p(math.exp(-without)), abs=1e-11)
        assert without < whole


@pytest.mark.parametrize("n", [2, 5])
def test_placed_points(n):
    equal, eye = torch.ones(n, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    assert dcl(equal, equal).item() == pytest.approx(math.log(n - 1), abs=1e-12)
    assert dcl(eye, eye, temperature=0.5).item() == pytest.approx(math.log(n - 1) - 2, abs=1e-12)


@pytest.mark.parametrize("p", [2, 3])
def test_one_example_is_zero_and_counted_where_it_has_no_negative(p):
    objective = DCL(1.0, 4, positives="pair", symmetric=True).double()
    x = cloud(1, p, 4).requires_grad_()
    loss = objective([[x]], torch.zeros(1))
    loss.backward()
    assert objective.counters["anchors_skipped"].item() == (2 if p == 2 else 1)
    assert bool(torch.isfinite(x.grad).all())
    anchor, positive, *negatives = x.detach()[0]
    forward = sum(cosine(anchor, row) - cosine(anchor, positive) for row in negatives) / 0.05
    assert loss.item() == pytest.approx(forward / 2, abs=1e-11)


def test_the_memory_gives_one_example_its_negatives():
    objective = DCL(1.0, 4, memory_rows=4, temperature=0.5).double()
    before, now = ([[cloud(1, 1, 4, seed=s)], [cloud(1, 1, 4, seed=s + 1)]] for s in (0, 2))
    objective.observe(before, torch.zeros(1))
    expected = loop(now[0][0][0], now[1][0][0], [[]], before[1][0][0], 0.5)
    assert objective(now, torch.zeros(1)).item() == pytest.approx(expected, abs=1e-11)
    assert objective.counters["anchors_skipped"] == 0


def test_arguments_are_judged_as_those_of_simcse():
    with pytest.raises(ValueError, match="temperature must be above 0, got -1"):
        DCL(1.0, 4, temperature=-1.0)
    with pytest.raises(ValueError, match="must be 0 with positives=dropout"):
        DCL(1.0, 4, hard_negative_weight=0.1)
