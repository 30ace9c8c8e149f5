"""What holds for the loss functions alike: gradients, what does not move them, zero vectors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.objectives.alignment import alignment
from isotrain.objectives.angle import angle
from isotrain.objectives.barlow import barlow
from isotrain.objectives.cosent import cosent
from isotrain.objectives.cosreg import cosreg
from isotrain.objectives.dcl import dcl
from isotrain.objectives.gor import gor
from isotrain.objectives.istar import istar
from isotrain.objectives.koleo import koleo
from isotrain.objectives.simcse import simcse
from isotrain.objectives.spectral import spectral
from isotrain.objectives.supcon import supcon
from isotrain.objectives.uniformity import uniformity
from isotrain.objectives.vicreg import vicreg

light = settings(max_examples=20)
GRADED = torch.tensor([0.0, 4.2, 2.5, 2.5, 1.0, 5.0, 4.2, 0.0])
CLASSES = torch.tensor([0, 1, 1, 2, 0, 2, 1, 0])
LENGTHS, SHIFT, COLUMNS = "rotation lengths", "rotation scale shift", "shift columns"
LOSSES = {  # loss of one cloud or of two, and what moves it not
    "cosreg": (cosreg, 1, LENGTHS),
    "gor": (gor, 1, LENGTHS),
    "uniformity": (uniformity, 1, LENGTHS),
    "koleo": (koleo, 1, LENGTHS),
    "supcon": (lambda x, labels: supcon(x, labels, temperature=0.4), "classes", LENGTHS),
    "spectral": (partial(spectral, n_components=2), 1, SHIFT),
    "istar": (istar, 1, SHIFT),
    "alignment": (alignment, 2, LENGTHS),
    "alignment 3.5": (partial(alignment, alpha=3.5), 2, LENGTHS),
    "simcse": (partial(simcse, temperature=0.4, symmetric=True), 2, LENGTHS),
    "dcl": (partial(dcl, temperature=0.4, symmetric=True), 2, LENGTHS),
    "cosent": (partial(cosent, scale=2.0), "graded", LENGTHS),
    "angle": (partial(angle, scale=2.0), "graded", "lengths"),
    "vicreg": (vicreg, 2, COLUMNS),
    "vicreg unbiased": (partial(vicreg, unbiased=True), 2, COLUMNS),
    "barlow": (barlow, 2, COLUMNS),
}
over_losses = pytest.mark.parametrize("name", LOSSES)


def cloud(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * 0.7 + 0.3


def loss_of(name, x, y, order=slice(None)):
    """The loss; labels go with their examples in any order."""
    loss, takes, _ = LOSSES[name]
    if takes == 1:
        return loss(x)
    if takes == "classes":
        return loss(x, CLASSES[order])
    return loss(x, y) if takes == 2 else loss(x, y, GRADED[order])


@over_losses
@pytest.mark.parametrize("d", [4, 12])
def test_has_the_gradient_that_differences_have(name, d):
    leaves = [cloud(8, d, seed).requires_grad_() for seed in (0, 1)]
    assert torch.autograd.gradcheck(lambda x, y: loss_of(name, x, y), leaves)


@over_losses
@given(st.integers(0, 10**6), st.floats(-4, 4), st.floats(-50, 50))
@light
def test_what_does_not_move_it(name, seed, exponent, shift):
    x, y = cloud(8, 6, seed), cloud(8, 6, seed + 1)
    expected = loss_of(name, x, y).item()
    generator = torch.Generator().manual_seed(seed)
    order, columns = (torch.randperm(n, generator=generator) for n in (8, 6))
    turn = torch.linalg.qr(cloud(6, 6, seed + 2))[0]
    factor = 10.0 ** torch.linspace(-exponent, exponent, 8, dtype=torch.float64)[:, None]
    moved = {
        "rotation": lambda z: z @ turn,
        "lengths": lambda z: z * factor,
        "scale": lambda z: z * 10.0**exponent,
        "shift": lambda z: z + shift,
        "columns": lambda z: z[:, columns],
    }
    changes = LOSSES[name][2].split()
    for change in changes:
        found = loss_of(name, moved[change](x), moved[change](y)).item()
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-8), change
    again = loss_of(name, x[order], y[order], order).item()
    assert again == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", [n for n, (_, _, moves) in LOSSES.items() if "lengths" in moves])
def test_a_zero_vector_keeps_the_gradient_finite(name):
    x, y = cloud(8, 6), cloud(8, 6, seed=1)
    x[1] = 0.0
    loss = loss_of(name, x.requires_grad_(), y)
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(x.grad).all())
