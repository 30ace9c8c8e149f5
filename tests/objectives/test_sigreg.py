"""SIGReg against the integral by quadrature, its closed form, and the life of its slices."""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from isotrain.objectives import sigreg as module
from isotrain.objectives.sigreg import SIGReg, sigreg


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


def directions(d, m, seed=0):
    drawn = cloud(d, m, seed + 100)
    return drawn / drawn.norm(dim=0)


def integral(value, end):
    def integrand(t):
        error = abs(np.exp(1j * t * value).mean() - np.exp(-t * t / 2)) ** 2
        return error * np.exp(-t * t / 2)

    return quad(integrand, -end, end, epsabs=1e-11, epsrel=1e-11, limit=200)[0]


def closed_form(value):
    """Over the whole line: Gaussian integrals of cosines."""
    apart = value[:, None] - value[None, :]
    mean = np.exp(-(apart**2) / 2).mean() - math.sqrt(2) * np.exp(-(value**2) / 4).mean()
    return math.sqrt(2 * math.pi) * (mean + 1 / math.sqrt(3))


@pytest.mark.parametrize(("n", "d", "m"), [(1, 2, 3), (7, 4, 5), (40, 3, 2)])
def test_fine_points_give_the_integral(n, d, m):
    x, slices = cloud(n, d, seed=n, mean=0.4), directions(d, m)
    values = (x @ slices).numpy().T
    expected = np.mean([integral(value, 3.0) for value in values])
    assert sigreg(x, slices, n_points=3001).item() == pytest.approx(expected, abs=2e-7)
    whole = np.mean([closed_form(value) for value in values])
    assert sigreg(x, slices, 9.0, 129).item() == pytest.approx(whole, abs=1e-12)


def test_the_default_points_are_the_trapezoid_rule_on_the_whole_interval():
    x, slices = cloud(9, 4, seed=1, mean=0.4), directions(4, 6)
    t = np.linspace(-3.0, 3.0, 33)
    values = (x @ slices).numpy()
    error = np.abs(np.exp(1j * values[:, :, None] * t).mean(axis=0) - np.exp(-t * t / 2)) ** 2
    expected = np.trapezoid(error * np.exp(-t * t / 2), t, axis=1).mean()
    assert sigreg(x, slices).item() == pytest.approx(expected, abs=1e-13)
    single = sigreg(x.float(), slices.float())
    assert single.item() == pytest.approx(expected, abs=1e-6)
    by_quadrature = np.mean([integral(value, 3.0) for value in values.T])
    assert expected == pytest.approx(by_quadrature, rel=0.01)


def test_normal_rows_give_what_the_docstring_says_and_others_more():
    n, slices = 64, directions(24, 64)
    found = [sigreg(cloud(n, 24, seed), slices).item() for seed in range(60)]
    assert n * np.mean(found) == pytest.approx(1.0525, rel=0.05)
    assert sigreg(cloud(n, 24) * 3.0, slices).item() > 5 * max(found)
    assert sigreg(cloud(n, 24) * 0.2, slices).item() > 5 * max(found)
    assert sigreg(cloud(n, 24, mean=0.5), slices).item() > 2 * np.mean(found)


def test_gradcheck():
    slices = directions(4, 3)
    assert torch.autograd.gradcheck(lambda x: sigreg(x, slices), cloud(6, 4).requires_grad_())


def test_unchanged_by_order_and_by_a_rotation_of_rows_and_slices():
    x, slices = cloud(9, 4, mean=0.3), directions(4, 6)
    rotation = torch.linalg.qr(cloud(4, 4, seed=5))[0]
    expected = sigreg(x, slices).item()
    assert sigreg(x.flip(0), slices.flip(1)).item() == pytest.approx(expected, abs=1e-14)
    assert sigreg(x @ rotation, rotation.T @ slices).item() == pytest.approx(expected, abs=1e-13)


def test_blocks_change_neither_value_nor_gradient(monkeypatch):
    x, slices = cloud(9, 4).requires_grad_(), directions(4, 10)
    expected = sigreg(x, slices)
    (gradient,) = torch.autograd.grad(expected, x)
    monkeypatch.setattr(module, "BLOCK_BYTES", 9 * 17 * 8 * 3)  # three slices
    found = sigreg(x, slices)
    assert found.item() == pytest.approx(expected.item(), abs=1e-15)
    torch.testing.assert_close(torch.autograd.grad(found, x)[0], gradient, rtol=1e-12, atol=1e-15)


def test_slices_are_unit_directions_of_the_step_and_the_seed():
    objective, x = SIGReg(weight=1.0, n_slices=2000), cloud(8, 6)
    first = objective.slices(x)
    assert first.dtype == x.dtype
    torch.testing.assert_close(first.norm(dim=0), torch.ones(2000, dtype=torch.float64))
    second_moment = first @ first.T / 2000
    assert float((second_moment - torch.eye(6) / 6).abs().max()) < 0.02
    before = deepcopy(objective)
    views = [[x]]
    assert objective(views, torch.zeros(8)).item() == objective(views, torch.zeros(8)).item()
    objective.observe(views, torch.zeros(8))
    assert not torch.equal(objective.slices(x), first)
    before.load_state_dict(objective.state_dict(), strict=True)
    assert torch.equal(before.slices(x), objective.slices(x))
    assert not torch.equal(SIGReg(weight=1.0, n_slices=2000, seed=1).slices(x), first)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    objective.slices(x)
    assert torch.equal(torch.get_rng_state(), state), "the global state is left alone"


def test_scaled_rows_have_length_root_d_and_raw_ones_their_own():
    x = cloud(12, 6, mean=0.4) * 7.0
    for rows, expected in (("scaled", x / x.norm(dim=1, keepdim=True) * 6**0.5), ("raw", x)):
        objective = SIGReg(weight=1.0, rows=rows, n_slices=32, t_max=2.0, n_points=9)
        found = objective([[x]], torch.zeros(12)).item()
        assert found == pytest.approx(
            sigreg(expected, objective.slices(x), 2.0, 9).item(), abs=1e-13
        )


def test_unit_rows_would_stall_and_scaled_ones_do_not():
    """Unit rows have variance 1/D: far from normal however they lie; scaled ones come near."""
    d = 64
    even = torch.nn.functional.normalize(cloud(256, d), dim=1)
    cone = torch.nn.functional.normalize(cloud(256, d, mean=1.0), dim=1)
    scaled, raw = (SIGReg(weight=1.0, rows=rows) for rows in ("scaled", "raw"))
    of_scaled = [scaled([[x]], torch.zeros(1)).item() for x in (even, cone)]
    of_raw = [raw([[x]], torch.zeros(1)).item() for x in (even, cone)]
    assert of_scaled[0] < 0.01 < 0.1 * of_scaled[1]
    assert of_raw[0] > 0.95 * of_raw[1]


def test_one_row_counts_as_undefined_and_a_zero_row_has_a_finite_gradient():
    objective = SIGReg(weight=1.0)
    one = cloud(1, 4).requires_grad_()
    loss = objective([[one]], torch.zeros(1))
    loss.backward()
    assert (loss.item(), one.grad.abs().max().item()) == (0.0, 0.0)
    assert objective.counters["undefined"].item() == 1.0
    x = cloud(4, 4)
    x[1] = 0.0
    objective([[x.requires_grad_()]], torch.zeros(4)).backward()
    assert bool(torch.isfinite(x.grad).all())
    assert objective.counters["undefined"].item() == 0.0
    with pytest.raises(ValueError, match="rows must be scaled or raw"):
        SIGReg(weight=1.0, rows="unit")


def test_steps_bring_rows_closer_to_normal():
    objective = SIGReg(weight=1.0, rows="raw")
    x = torch.nn.Parameter(cloud(64, 8, mean=1.0) * 0.3)
    fixed = directions(8, 256)
    before = sigreg(x, fixed).item()
    for _ in range(30):
        (gradient,) = torch.autograd.grad(objective([[x]], torch.zeros(64)), x)
        x.data -= 20.0 * gradient
        objective.observe([[x.detach()]], torch.zeros(64))
    assert sigreg(x, fixed).item() < 0.2 * before
