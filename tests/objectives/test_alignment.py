"""Alignment as a loss against a loop and the metric, and which rows are positives."""

from __future__ import annotations

import pytest
import torch

from isotrain.metrics.alignment import alignment as measured
from isotrain.objectives.alignment import Alignment, alignment


def cloud(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + 0.3


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.0])
def test_equals_the_loop_and_the_metric(alpha):
    x, y = cloud(7, 4), cloud(7, 4, seed=1)
    x[2] = 3.0 * y[2]
    total = 0.0
    for i in range(7):
        total += float((x[i] / x[i].norm() - y[i] / y[i].norm()).norm() ** alpha)
    assert alignment(x, y, alpha).item() == pytest.approx(total / 7, abs=1e-7)
    assert alignment(x, y, alpha).item() == pytest.approx(measured(x, y, alpha).item(), abs=1e-14)
    single = alignment(x.float(), y.float(), alpha)
    assert single.item() == pytest.approx(total / 7, abs=1e-3 if alpha < 1 else 1e-6)


def test_placed_points():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert alignment(x, x).item() == 0.0
    assert alignment(x, -x).item() == pytest.approx(4.0, abs=1e-6)
    assert alignment(x, x.flip(1), 3.0).item() == pytest.approx(2.0**1.5, abs=1e-6)


def test_invariances_and_equal_pairs():
    x, y = cloud(6, 4), cloud(6, 4, seed=1)
    rotation = torch.linalg.qr(cloud(4, 4, seed=2))[0]
    expected = alignment(x, y).item()
    assert alignment(y, x).item() == pytest.approx(expected, abs=1e-14)
    assert alignment((5 * x).flip(0) @ rotation, y.flip(0) @ rotation).item() == pytest.approx(
        expected, abs=1e-12
    )
    equal = x.clone().requires_grad_()
    alignment(equal, x, 0.5).backward()
    assert equal.grad.abs().max().item() == 0.0


def test_dropout_pairs_every_row_of_two_views():
    objective = Alignment(weight=1.0, reads=("pooled", "layer_2/tokens"))
    first, second = ([cloud(6, 4, s).reshape(3, 2, 4), cloud(9, 4, s + 1)] for s in (0, 10))
    expected = (alignment(cloud(6, 4), cloud(6, 4, 10)) + alignment(first[1], second[1])) / 2
    found = objective([first, second], torch.zeros(3))
    assert found.item() == pytest.approx(expected.item(), abs=1e-13)
    assert (objective.n_views, objective.needs) == (2, "rows")


def test_pairs_are_those_whose_label_lies_in_the_interval():
    vectors, labels = cloud(10, 4).reshape(5, 2, 4), torch.tensor([0.0, 0.8, 0.5, 1.0, 0.79])
    every = Alignment(weight=1.0, positives="pair")
    assert (every.n_views, every.needs) == (1, "two_vectors")
    expected = alignment(vectors[:, 0], vectors[:, 1]).item()
    assert every([[vectors]], labels).item() == pytest.approx(expected, abs=1e-13)
    some = Alignment(weight=1.0, positives="pair", positive_labels=[0.8, 1.0])
    chosen = alignment(vectors[[1, 3], 0], vectors[[1, 3], 1]).item()
    assert some([[vectors]], labels.double()).item() == pytest.approx(chosen, abs=1e-13)
    entailed = Alignment(weight=1.0, positives="pair", positive_labels=[0, 0])
    classes = torch.tensor([1, 0, 0, 1, 1])
    chosen = alignment(vectors[[1, 2], 0], vectors[[1, 2], 1]).item()
    assert entailed([[vectors]], classes).item() == pytest.approx(chosen, abs=1e-13)


def test_without_a_positive_the_loss_is_zero_and_counted():
    objective = Alignment(weight=1.0, positives="pair", positive_labels=[0.9, 1.0])
    vectors = cloud(10, 4).reshape(5, 2, 4).requires_grad_()
    loss = objective([[vectors]], torch.zeros(5))
    loss.backward()
    assert loss.item() == 0.0
    assert vectors.grad.abs().max().item() == 0.0
    assert objective.counters["undefined"].item() == 1.0


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="positives=dropout pairs each embedding"):
        Alignment(weight=1.0, positive_labels=[1, 1])
    for interval in ([1], [0.9, 0.1], []):
        with pytest.raises(ValueError, match=r"interval \[low, high\]"):
            Alignment(weight=1.0, positives="pair", positive_labels=interval)
    pairs = Alignment(weight=1.0, positives="pair")
    for wrong in (cloud(6, 4), cloud(6, 4).reshape(2, 3, 4)):
        with pytest.raises(ValueError, match=r"two vectors of an example, \[B, 2, D\]"):
            pairs([[wrong]], torch.zeros(2))
    with pytest.raises(ValueError, match="alpha must be above 0"):
        Alignment(weight=1.0, alpha=0.0)


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_steps_move_positives_in_the_direction_of_the_sign(weight):
    x, y = torch.nn.Parameter(cloud(9, 4)), cloud(9, 4, seed=1)
    before = alignment(x, y).item()
    for _ in range(3):
        (gradient,) = torch.autograd.grad(weight * alignment(x, y), x)
        x.data -= gradient
    assert weight * (alignment(x, y).item() - before) < -0.05
