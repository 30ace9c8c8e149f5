"""What holds for all loss functions: what does not move them, zero vectors, rejected shapes."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.objectives.alignment import alignment
from isotrain.objectives.anchor import anchor
from isotrain.objectives.angle import angle
from isotrain.objectives.barlow import barlow
from isotrain.objectives.cosent import cosent
from isotrain.objectives.cosreg import cosreg
from isotrain.objectives.dcl import dcl
from isotrain.objectives.gor import gor
from isotrain.objectives.istar import istar
from isotrain.objectives.koleo import koleo
from isotrain.objectives.sigreg import sigreg
from isotrain.objectives.simcse import simcse
from isotrain.objectives.spectral import spectral
from isotrain.objectives.supcon import supcon
from isotrain.objectives.uniformity import uniformity
from isotrain.objectives.vicreg import vicreg
from isotrain.objectives.visreg import visreg
from tests.clouds import normal

GRADED = torch.tensor([0.0, 4.2, 2.5, 2.5, 1.0, 5.0, 4.2, 0.0])
EYE = torch.eye(6, dtype=torch.float64)
CLASSES = torch.tensor([0, 1, 1, 2, 0, 2, 1, 0])
LENGTHS, SHIFT, COLUMNS = "rotation lengths", "rotation scale shift", "shift columns"
LOSSES = {  # loss of one cloud or of two, what does not move it, and the fewest embeddings
    "cosreg": (cosreg, 1, LENGTHS, 1),
    "gor": (gor, 1, LENGTHS, 2),
    "uniformity": (uniformity, 1, LENGTHS, 2),
    "koleo": (koleo, 1, LENGTHS, 2),
    "supcon": (partial(supcon, temperature=0.4), "classes", LENGTHS, 1),
    "spectral": (partial(spectral, n_components=2), 1, SHIFT, 4),
    "istar": (istar, 1, SHIFT, 3),
    "visreg": (lambda x: visreg(x, normal(x.shape[-1], 3)), 1, "", 2),
    "visreg shape": (lambda x: visreg(x, EYE, 0.0, 1.0, 0.0), 1, "shift scale columns", 2),
    "sigreg": (lambda x: sigreg(x, normal(x.shape[-1], 3)), 1, "", 1),
    "alignment": (alignment, 2, LENGTHS + " exchange", 1),
    "simcse": (partial(simcse, temperature=0.4, symmetric=True), 2, LENGTHS + " exchange", 1),
    "dcl": (partial(dcl, temperature=0.4, symmetric=True), 2, LENGTHS + " exchange", 1),
    "cosent": (partial(cosent, scale=2.0), "graded", LENGTHS + " exchange", 1),
    "angle": (partial(angle, scale=2.0), "graded", "lengths", 1),
    "anchor": (anchor, 2, LENGTHS + " exchange", 1),
    "anchor squared": (partial(anchor, distance="squared"), 2, "rotation scale", 1),
    "anchor centred": (partial(anchor, centred=True), 2, SHIFT + " exchange", 2),
    "vicreg": (vicreg, 2, COLUMNS + " exchange", 2),
    "barlow": (barlow, 2, COLUMNS + " exchange", 2),
}
over_losses = pytest.mark.parametrize("name", LOSSES)


def loss_of(name, x, y, order=slice(None)):
    """The loss; labels go with their examples in any order."""
    loss, takes, *_ = LOSSES[name]
    if takes == 1:
        return loss(x)
    if takes == "classes":
        return loss(x, CLASSES[order])
    return loss(x, y) if takes == 2 else loss(x, y, GRADED[order])


@over_losses
@given(st.integers(0, 10**6), st.floats(-4, 4), st.floats(-50, 50))
@settings(max_examples=20)
def test_what_does_not_move_it(name, seed, exponent, shift):
    x, y = normal(8, 6, seed=seed), normal(8, 6, seed=seed + 1)
    expected = loss_of(name, x, y).item()
    generator = torch.Generator().manual_seed(seed)
    order, columns = (torch.randperm(n, generator=generator) for n in (8, 6))
    turn = torch.linalg.qr(normal(6, 6, seed=seed + 2))[0]
    factor = 10.0 ** torch.linspace(-exponent, exponent, 8, dtype=torch.float64)[:, None]
    moved = {
        "rotation": lambda z: z @ turn,
        "lengths": lambda z: z * factor,
        "scale": lambda z: z * 10.0**exponent,
        "shift": lambda z: z + shift,
        "columns": lambda z: z[:, columns],
    }
    for change in LOSSES[name][2].split():
        pair = (y, x) if change == "exchange" else (moved[change](x), moved[change](y))
        found = loss_of(name, *pair).item()
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-8), change
    again = loss_of(name, x[order], y[order], order).item()
    assert again == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", [n for n, case in LOSSES.items() if "lengths" in case[2]])
def test_a_zero_vector_keeps_the_gradient_finite(name):
    x, y = normal(8, 6), normal(8, 6, seed=1)
    x[1] = 0.0
    loss = loss_of(name, x.requires_grad_(), y)
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("name", ["istar", "spectral", "koleo", "alignment"])
def test_equal_eigenvalues_and_equal_embeddings_keep_the_gradient_finite(name):
    for x in (torch.cat([torch.eye(4), -torch.eye(4)]), torch.eye(4).repeat(2, 1)):
        x = x.double().requires_grad_()
        loss_of(name, x, x.detach()).backward()
        assert bool(torch.isfinite(x.grad).all())


@over_losses
def test_too_few_embeddings_and_what_is_no_cloud_are_rejected(name):
    least = LOSSES[name][3]
    with pytest.raises(ValueError, match=f"at least {least} rows, got {least - 1}"):
        loss_of(name, normal(least - 1, 6), normal(least - 1, 6), slice(least - 1))
    for shape in ((4,), (8, 2, 6)):
        with pytest.raises(ValueError, match=r"shape \[N, D\]"):
            loss_of(name, torch.ones(shape), torch.ones(shape), slice(shape[0]))


@pytest.mark.parametrize("name", [n for n, case in LOSSES.items() if case[1] in (2, "graded")])
def test_a_second_cloud_of_another_shape_is_rejected(name):
    for shape in ((1, 6), (7, 6), (8, 4), (8, 1), (6,), (8, 1, 6)):
        with pytest.raises(ValueError, match=r"one embedding for each, \(8, 6\), got"):
            loss_of(name, normal(8, 6), torch.ones(shape))


@pytest.mark.parametrize("name", ["supcon", "cosent", "angle"])
def test_labels_that_are_not_one_an_embedding_are_rejected(name):
    for order in (slice(3), slice(3, 3), (slice(None), None)):
        with pytest.raises((ValueError, IndexError), match=r"one for each|mask|too many indices"):
            loss_of(name, normal(8, 6), normal(8, 6), order)
