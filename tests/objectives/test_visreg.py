"""VISReg against closed forms and a slow reference; collapse, normal embeddings, its slices."""

import math
from copy import deepcopy
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.rng import slices_of_step
from isotrain.objectives.sigreg import sigreg
from isotrain.objectives.visreg import VISReg, visreg
from tests.clouds import normal

ZEROS, EYE = torch.zeros(8), torch.eye(6, dtype=torch.float64)
SCALE, SHAPE, CENTRE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def quantiles(n):
    levels = [NormalDist().inv_cdf(k / (n + 1)) for k in range(1, n + 1)]
    return torch.tensor(levels, dtype=torch.float64)


def slow(x, slices, scale, shape, centre):
    """One slice at a time, in numpy."""
    x, slices = x.detach().numpy(), slices.numpy()
    mean, std = x.mean(axis=0), x.std(axis=0)
    apart = [
        np.mean((np.sort((x - mean) / std @ slice_D) - quantiles(len(x)).numpy()) ** 2)
        for slice_D in slices.T
    ]
    return scale * np.mean((1 - std) ** 2) + shape * np.mean(apart) + centre * np.mean(mean**2)


@given(st.integers(0, 10**6), st.integers(2, 30), st.tuples(*[st.floats(0, 5)] * 3))
@settings(max_examples=40)
def test_it_is_the_slow_reference(seed, n, weights):
    x = normal(n, 6, seed=seed) * 2.5
    slices = slices_of_step(x, 5, seed, torch.tensor(1))
    expected = slow(x, slices, *weights)
    assert visreg(x, slices, *weights).item() == pytest.approx(expected, rel=1e-9, abs=1e-11)


def test_quantiles_of_one_coordinate_have_a_closed_form():
    """Values c·q + m have the standard deviation c·s; standardised, q/s, the shape (1 − s)²."""
    for n, c, m in ((2, 1.0, 0.0), (9, 3.0, -2.0), (40, 0.1, 5.0)):
        q, slices = quantiles(n), torch.ones(1, 3, dtype=torch.float64)
        s = q.square().mean().sqrt().item()
        x = (c * q + m)[torch.randperm(n, generator=torch.Generator().manual_seed(n))][:, None]
        assert visreg(x, slices, *SCALE).item() == pytest.approx((1 - c * s) ** 2, abs=1e-12)
        assert visreg(x, slices, *SHAPE).item() == pytest.approx((1 - s) ** 2, abs=1e-12)
        assert visreg(x, slices, *CENTRE).item() == pytest.approx(m**2, abs=1e-12)
        assert visreg(x, slices).item() == pytest.approx(
            (1 - c * s) ** 2 + (1 - s) ** 2 + m**2, abs=1e-11
        )


def test_the_loss_of_normal_embeddings_falls_to_0_and_others_stay_above():
    slices = slices_of_step(EYE, 64, 0, torch.tensor(0))
    found = [
        np.mean([visreg(normal(n, 6, seed=k, mean=0.0), slices).item() for k in range(5)])
        for n in (32, 512, 8192)
    ]
    assert found[0] > 4 * found[1] > 16 * found[2]
    assert found[2] < 0.005
    x = normal(8192, 6, mean=0.0)
    for other in (
        3.0 * x,
        x + 1.0,
        x.sign(),
        x.abs() * 1.7,
        x @ torch.ones(6, 6).double() / 6**0.5,
    ):
        assert visreg(other, slices).item() > 10 * found[2]


def gradient(loss, x):
    x = x.clone().requires_grad_()
    loss(x).backward()
    return x.grad


@pytest.mark.parametrize("spread", [1e-1, 1e-3, 1e-5])
def test_near_a_collapse_the_gradient_keeps_its_length_where_that_of_sigreg_vanishes(spread):
    n, d = 16, 6
    x = 0.0 + spread * normal(n, d, mean=0.0)
    std = x.std(dim=0, correction=0)
    own = gradient(lambda z: visreg(z, EYE, *SCALE), x)
    expected = 2 * (1 - std).norm().item() / (d * math.sqrt(n))
    assert own.norm().item() == pytest.approx(expected, rel=1e-9)
    moved = x - 1e-7 * own / own.norm()
    assert bool((moved.std(dim=0, correction=0) > std).all()), "out of the collapse"
    around_0 = x - x.mean(dim=0)
    assert gradient(lambda z: sigreg(z, EYE), around_0).norm().item() < 20 * spread / math.sqrt(n)


def test_equal_embeddings_have_a_finite_gradient_that_sets_them_apart():
    x = torch.arange(6.0).double().repeat(8, 1)  # their mean is exact
    found = gradient(lambda z: visreg(z, EYE), x)
    assert bool(torch.isfinite(found).all())
    assert bool((x - 1e-9 * found).std(dim=0).gt(0).all())
    torch.testing.assert_close(found.mean(dim=0), 2 * x[0] / x.numel(), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient(lambda z: visreg(z, EYE, *CENTRE), x), 2 * x / x.numel())
    shape = quantiles(8).square().mean().item()
    assert visreg(x, EYE, *SHAPE).item() == pytest.approx(shape, abs=1e-8)
    assert visreg(x, EYE, *SCALE).item() == pytest.approx(1.0, abs=1e-8)


def test_the_shape_term_takes_the_scale_as_given():
    """Its gradient is that with the standard deviations as constants."""
    x, slices = normal(12, 6), slices_of_step(EYE, 9, 0, torch.tensor(0))
    mean, std = x.mean(dim=0), x.std(dim=0, correction=0)

    def with_constant_std(z):
        values = ((z - z.mean(dim=0)) / std @ slices).sort(dim=0).values
        return (values - quantiles(12)[:, None]).square().mean()

    torch.testing.assert_close(
        gradient(lambda z: visreg(z, slices, *SHAPE), x), gradient(with_constant_std, x)
    )
    stretched = mean + (x - mean) * torch.linspace(0.2, 4, 6, dtype=torch.float64)
    values = [visreg(z, slices, *SHAPE).item() for z in (x, stretched)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_weights_and_the_slices_of_the_step_reach_the_loss():
    objective, x = (
        VISReg(0.3, ("pooled", "layer_1/tokens"), 2.0, 0.5, 0.25, 7, seed=3),
        normal(8, 6),
    )
    y, state = normal(11, 6, seed=1), torch.get_rng_state()

    def expected(step):
        slices = slices_of_step(x, 7, 3, torch.tensor(step))
        return (slow(x, slices, 2.0, 0.5, 0.25) + slow(y, slices, 2.0, 0.5, 0.25)) / 2

    views = [[x.reshape(4, 2, 6), y]]
    assert objective(views, ZEROS).item() == pytest.approx(expected(0), abs=1e-11)
    assert torch.equal(torch.get_rng_state(), state), "the global state is left alone"
    resumed = deepcopy(objective)
    objective.observe([], ZEROS)
    assert objective(views, ZEROS).item() == pytest.approx(expected(1), abs=1e-11)
    resumed.load_state_dict(objective.state_dict())
    assert torch.equal(resumed(views, ZEROS), objective(views, ZEROS))
    one = normal(1, 6).requires_grad_()
    loss = objective([[one, y]], ZEROS)
    loss.backward()
    assert objective.counters["undefined"] == 1
    assert not one.grad.any()
