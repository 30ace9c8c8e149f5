"""Temperature scaling: the best temperature against scipy and in closed form."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

from isotrain.training.temperature import best_factor, scaled_loss


@given(st.integers(0, 10_000), st.floats(0.1, 8.0), st.integers(2, 4))
def test_the_temperature_is_the_one_of_a_search(seed, scale, n_classes):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(60, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    found = best_factor(scale * logits, labels, 0.0, 100.0)
    loss = minimize_scalar(
        lambda b: float(cross_entropy(b * scale * logits, labels)), (0.0, 1.0), tol=1e-10
    )
    assert found == pytest.approx(max(float(loss.x), 0.0), rel=1e-4, abs=1e-5)


def test_the_scale_of_logits_does_not_matter_and_the_loss_is_never_above_that_of_chance_on_dev():
    generator = torch.Generator().manual_seed(0)
    dev, test = torch.randn(2, 200, 3, generator=generator, dtype=torch.float64)
    labels = dev.argmax(1).where(torch.rand(200, generator=generator) < 0.5, torch.arange(200) % 3)
    once = scaled_loss(test, labels, dev, labels)
    for scale in (1e-6, 7, 1e6):
        again = scaled_loss(scale * test, labels, scale * dev, labels)
        assert again == pytest.approx(once, rel=1e-9)
    assert scaled_loss(dev, labels, dev, labels) <= min(math.log(3), cross_entropy(dev, labels))


def test_logits_that_mislead_count_as_equal_probabilities():
    logits, labels = torch.tensor([[2.0, 0.0]] * 4), torch.tensor([1, 1, 1, 0])
    assert best_factor(logits, labels, 0.0, 100.0) == 0
    assert scaled_loss(logits, labels, logits, labels) == pytest.approx(math.log(2))


def test_the_factor_stays_within_its_bounds():
    logits, labels = torch.tensor([[1.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    assert [best_factor(logits, labels, *ends) for ends in ((2.0, 9.0), (0.0, 1.0))] == [2.0, 1.0]


def test_without_an_error_on_dev_there_is_no_temperature():
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    assert scaled_loss(logits, labels, logits, labels) is None
