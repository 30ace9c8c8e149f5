"""SIGReg against the integral by quadrature, its closed form, and the slices of a step."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.nn.functional import normalize

from isotrain.objectives import sigreg as module
from isotrain.objectives.sigreg import SIGReg, sigreg
from tests.clouds import normal

ZEROS = torch.zeros(8)


def directions(d, m):
    return normalize(normal(d, m, seed=100, mean=0.0), dim=0)


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
def test_fine_points_give_the_integral_and_the_default_ones_nearly(n, d, m):
    x, slices = normal(n, d, seed=n), directions(d, m)
    values = (x @ slices).numpy().T
    expected = np.mean([integral(value, 3.0) for value in values])
    assert sigreg(x, slices, n_points=3001).item() == pytest.approx(expected, abs=2e-7)
    assert sigreg(x, slices).item() == pytest.approx(expected, rel=0.01)
    whole = np.mean([closed_form(value) for value in values])
    assert sigreg(x, slices, 9.0, 129).item() == pytest.approx(whole, abs=1e-12)


def test_normal_embeddings_give_what_the_docstring_says_and_others_more():
    n, slices = 64, directions(24, 64)
    clouds = [normal(n, 24, seed=seed, mean=0.0) for seed in range(60)]
    found = [sigreg(x, slices).item() for x in clouds]
    assert n * np.mean(found) == pytest.approx(1.0525, rel=0.05)
    for x in (clouds[0] * 3.0, clouds[0] * 0.2, clouds[0] + 1.0):
        assert sigreg(x, slices).item() > 2 * max(found)


def test_blocks_change_neither_value_nor_gradient(monkeypatch):
    x, slices = normal(9, 4).requires_grad_(), directions(4, 10)
    expected = sigreg(x, slices)
    (gradient,) = torch.autograd.grad(expected, x)
    monkeypatch.setattr(module, "BLOCK_BYTES", 9 * 17 * 8 * 3)  # three slices
    found = sigreg(x, slices)
    assert found.item() == pytest.approx(expected.item(), abs=1e-15)
    torch.testing.assert_close(torch.autograd.grad(found, x)[0], gradient, rtol=1e-12, atol=1e-15)


def slices_of(objective, x):
    ((slices,),) = objective.more([[x]])
    return slices


def test_slices_are_unit_directions_of_the_step_and_the_seed():
    objective, x = SIGReg(weight=1.0, n_slices=2000), normal(8, 6)
    state = torch.get_rng_state()
    first = slices_of(objective, x)
    assert torch.equal(torch.get_rng_state(), state), "the global state is left alone"
    assert first.dtype == x.dtype
    torch.testing.assert_close(first.norm(dim=0), torch.ones(2000, dtype=torch.float64))
    assert float((first @ first.T / 2000 - torch.eye(6) / 6).abs().max()) < 0.02
    resumed = deepcopy(objective)
    objective.observe([[x]], ZEROS)
    assert not torch.equal(slices_of(objective, x), first)
    resumed.load_state_dict(objective.state_dict(), strict=True)
    assert torch.equal(slices_of(resumed, x), slices_of(objective, x))
    assert not torch.equal(slices_of(SIGReg(weight=1.0, n_slices=2000, seed=1), x), first)


def test_scaled_embeddings_have_length_root_d_and_raw_ones_their_own():
    x = normal(12, 6) * 7.0
    for rows, expected in (("scaled", x / x.norm(dim=1, keepdim=True) * 6**0.5), ("raw", x)):
        objective = SIGReg(weight=1.0, rows=rows, n_slices=32, t_max=2.0, n_points=9)
        slices = slices_of(objective, x)
        found = objective([[x]], ZEROS).item()
        assert found == pytest.approx(sigreg(expected, slices, 2.0, 9).item(), abs=1e-13)
    one = normal(1, 4).requires_grad_()
    loss = objective([[one]], ZEROS)
    loss.backward()
    assert (loss.item(), objective.counters["undefined"].item()) == (0.0, 1.0)
    assert not one.grad.any()


def test_unit_embeddings_would_stall_and_scaled_ones_do_not():
    """Unit vectors have variance 1/D: far from normal however they lie; scaled ones come near."""
    even, cone = (normalize(normal(256, 64, mean=mean), dim=1) for mean in (0.0, 1.0))
    scaled, raw = (
        [SIGReg(weight=1.0, rows=rows)([[x]], ZEROS).item() for x in (even, cone)]
        for rows in ("scaled", "raw")
    )
    assert scaled[0] < 0.01 < 0.1 * scaled[1]
    assert raw[0] > 0.95 * raw[1]
