"""MeanDirection against the closed form, its gradient, and what it does to cosines."""

import numpy as np
import pytest
import torch

from isotrain.geometry.cosine import paired_cosines
from isotrain.transforms.mean_direction import MeanDirection
from tests.clouds import correlated as cloud
from tests.clouds import normal


def direction(x):
    mean = x.detach().numpy().mean(axis=0)
    return torch.from_numpy(mean / np.linalg.norm(mean))


@pytest.mark.parametrize(("n", "d"), [(2, 3), (32, 64), (200, 8)])
def test_value_and_gradient_are_those_of_the_closed_form(n, d):
    x, upstream = cloud(n, d, seed=n, mean=-3.0).requires_grad_(), normal(n, d, seed=24)
    y = MeanDirection(d, stats="batch").double()(x)
    unit = direction(x)
    projector = torch.eye(d, dtype=x.dtype) - torch.outer(unit, unit)
    torch.testing.assert_close(y, x.detach() @ projector, atol=1e-12, rtol=0)
    y.backward(upstream)
    torch.testing.assert_close(x.grad, upstream @ projector, atol=1e-12, rtol=0)


def test_one_map_of_the_first_fit_serves_training_and_evaluation():
    x, later = cloud(64, 8, seed=1, mean=2.0), cloud(16, 8, seed=2, mean=-5.0)
    layer = MeanDirection(8, stats="start", eval_stats="refit").double()
    layer.fit(x)
    layer.observe(later)
    layer.fit()
    unit = direction(x)
    for mode in (True, False):
        found = layer.train(mode)(later)
        torch.testing.assert_close(found, later - torch.outer(later @ unit, unit))


def test_the_cosines_of_results_do_not_depend_on_the_length_of_the_mean():
    x = cloud(64, 8, seed=3, mean=0.0)
    unit = torch.nn.functional.normalize(normal(8, seed=4), dim=0)
    centred = x - x.mean(dim=0)
    found = [
        MeanDirection(8, stats="batch").double()(centred + length * unit) for length in (1e-3, 1e3)
    ]
    of_pairs = [paired_cosines(y[:32], y[32:]) for y in found]
    torch.testing.assert_close(*of_pairs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_any_scale_in_float32(size):
    x = cloud(64, 8, seed=5, mean=2.0).float()
    y = MeanDirection(8, stats="batch")(size * x)
    torch.testing.assert_close(y / size, MeanDirection(8, stats="batch")(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("n", [1, 7])
def test_a_cloud_without_scatter_passes_and_is_counted(n):
    x, layer = torch.full((n, 4), 3.0), MeanDirection(4, stats="batch")
    assert torch.equal(layer(x), x)
    assert float(layer.counters["rows_passed_through"]) == n


def test_centred_embeddings_stay():
    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    assert torch.equal(MeanDirection(2, stats="batch")(x), x)
