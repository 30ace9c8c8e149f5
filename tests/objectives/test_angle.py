"""AnglE against sentence-transformers, complex numbers and placed points."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.losses import AnglELoss

from isotrain.objectives.angle import AnglE, angle, angle_similarity
from isotrain.objectives.cosent import CoSENT

light = settings(max_examples=25)
GRADED = torch.tensor([0.0, 4.2, 2.5, 2.5, 1.0, 5.0])


def cloud(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) + 0.3


@pytest.mark.parametrize("labels", [GRADED, (GRADED > 2).long()])
@pytest.mark.parametrize("scale", [20.0, 1.0])
def test_equals_sentence_transformers(labels, scale):
    x, y = (cloud(6, 8, seed=s).requires_grad_() for s in range(2))
    expected = AnglELoss(None, scale).compute_loss_from_embeddings([x, y], labels)
    found = angle(x, y, labels, scale)
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)
    mine, theirs = (torch.autograd.grad(loss, [x, y]) for loss in (found, expected))
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-9)
    if scale == 20.0:  # the default of both
        assert angle(x, y, labels).item() == found.item()
    x, y = x.detach().float(), y.detach().float()
    expected = AnglELoss(None, scale).compute_loss_from_embeddings([x, y], labels)
    assert angle(x, y, labels, scale).item() == pytest.approx(expected.item(), abs=1e-6, rel=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 5))
@light
def test_the_similarity_is_a_quotient_of_complex_rows(seed, half):
    x, y = (cloud(3, 2 * half, seed=seed + s) for s in range(2))
    z, w = (v.numpy()[:, :half] + 1j * v.numpy()[:, half:] for v in (x, y))
    modulus = np.linalg.norm(z, axis=1, keepdims=True) / np.linalg.norm(w, axis=1, keepdims=True)
    # z/w by the rule (a + bi)(c − di)/|w|², where |w| is that of the whole row
    quotient = z * w.conj() / np.linalg.norm(w, axis=1, keepdims=True) ** 2 / modulus
    expected = np.abs(quotient.real.sum(axis=1) + quotient.imag.sum(axis=1))
    found = angle_similarity(x, y)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert bool((found <= math.sqrt(2) + 1e-12).all())
    np.testing.assert_allclose(angle_similarity(9 * x, y / 7).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(0, 1.0), (45, math.sqrt(2)), (90, 1.0), (135, 0.0), (-45, 0.0)]
)
def test_placed_points(degrees, expected):
    turn = math.radians(degrees)
    x = torch.tensor([[math.cos(turn), math.sin(turn)]], dtype=torch.float64)
    one = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert angle_similarity(x, one).item() == pytest.approx(expected, abs=1e-12)


def test_equal_similarities_count_the_ordered_pairs():
    x = cloud(1, 4).repeat(4, 1)
    assert angle(x, 2 * x, torch.tensor([0, 0, 1, 2])).item() == pytest.approx(math.log(6))


def test_a_zero_row_is_unlike_all_and_keeps_the_gradient_finite():
    x, y = cloud(3, 4), cloud(3, 4, seed=1)
    x[1] = 0.0
    x.requires_grad_()
    assert angle_similarity(x, y)[1].item() == 0.0
    angle(x, y, GRADED[:3]).backward()
    assert bool(torch.isfinite(x.grad).all())


def test_objective_compares_the_two_vectors_of_each_example():
    objective, x = AnglE(weight=0.3, width=4, scale=5.0), cloud(6, 2, 4)
    assert (objective.weight, objective.n_views, objective.needs) == (0.3, 1, "scored_pairs")
    found = objective([[x]], GRADED)
    assert found.item() == angle(x[:, 0], x[:, 1], GRADED, 5.0).item()
    assert found.item() != CoSENT(1.0, scale=5.0)([[x]], GRADED).item()
    turned = AnglE(1.0, 4, scale=5.0, more_similar="lower")([[x]], 5.0 - GRADED)
    assert turned.item() == pytest.approx(found.item(), abs=1e-12)


@pytest.mark.parametrize("labels", [torch.ones(1), torch.tensor([2, 2])])
def test_a_batch_of_equal_labels_is_zero_and_counted(labels):
    objective, x = AnglE(1.0, 4), cloud(len(labels), 2, 4).requires_grad_()
    loss = objective([[x]], labels)
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.abs().max() == 0.0
    assert objective.counters["undefined"] == 1


def test_odd_width_is_refused():
    with pytest.raises(ValueError, match="in pairs, as real and imaginary parts, got D = 5"):
        AnglE(1.0, 5)
    with pytest.raises(ValueError, match="got D = 3; use an encoder of even width"):
        angle(cloud(2, 3), cloud(2, 3), GRADED[:2])
