"""CoSENT against sentence-transformers, a loop and placed points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.losses import CoSENTLoss

from isotrain.objectives.cosent import CoSENT, cosent

light = settings(max_examples=25)
GRADED = torch.tensor([0.0, 4.2, 2.5, 2.5, 1.0, 5.0])


def cloud(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) + 0.3


@pytest.mark.parametrize("labels", [GRADED, (GRADED > 2).long(), GRADED > 2])
@pytest.mark.parametrize("scale", [20.0, 1.0])
def test_equals_sentence_transformers(labels, scale):
    x, y = (cloud(6, 5, seed=s).requires_grad_() for s in range(2))
    expected = CoSENTLoss(None, scale).compute_loss_from_embeddings([x, y], labels)
    found = cosent(x, y, labels, scale)
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)
    mine, theirs = (torch.autograd.grad(loss, [x, y]) for loss in (found, expected))
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-9)
    x, y = x.detach().float(), y.detach().float()
    expected = CoSENTLoss(None, scale).compute_loss_from_embeddings([x, y], labels)
    assert cosent(x, y, labels, scale).item() == pytest.approx(expected.item(), abs=1e-6, rel=1e-6)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.floats(0.5, 30))
@light
def test_equals_the_loop(labels, scale):
    x, y = cloud(len(labels), 3), cloud(len(labels), 3, seed=1)
    cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in zip(x, y, strict=True)]
    total = 1.0
    for s_i, y_i in zip(cosines, labels, strict=True):
        for s_j, y_j in zip(cosines, labels, strict=True):
            if y_i < y_j:
                total += math.exp(scale * (s_i - s_j))
    assert cosent(x, y, torch.tensor(labels), scale).item() == pytest.approx(
        math.log(total), abs=1e-10
    )


@given(st.integers(0, 10**6))
@light
def test_lengths_order_roles_rotation_and_spacing_of_labels_change_nothing(seed):
    x, y = cloud(6, 3, seed=seed), cloud(6, 3, seed=seed + 1)
    before = cosent(x, y, GRADED).item()
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    turn = torch.linalg.qr(cloud(3, 3, seed=seed + 2))[0]
    found = [
        cosent(7 * x, y / 3, GRADED),
        cosent(x[order], y[order], GRADED[order]),
        cosent(y, x, GRADED),
        cosent(x @ turn, y @ turn, GRADED),
        cosent(x, y, GRADED.square()),
    ]
    assert [value.item() for value in found] == pytest.approx([before] * 5, abs=1e-9)


def test_placed_points():
    x = torch.eye(4, dtype=torch.float64)
    equal = torch.full((4, 4), 0.5, dtype=torch.float64)  # every cosine is a half
    assert cosent(x, equal, torch.tensor([0, 1, 2, 3])).item() == pytest.approx(math.log(7))
    right, wrong = torch.tensor([0, 1]), torch.tensor([1, 0])
    y = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)  # cosines 0 and 1
    ordered = math.log1p(math.exp(-20.0))
    assert cosent(x[:2, :2], y, right).item() == pytest.approx(ordered, abs=1e-15)
    assert cosent(x[:2, :2], y, wrong).item() == pytest.approx(20 + ordered, abs=1e-12)


def test_a_zero_row_has_cosine_zero_and_a_finite_gradient():
    x, y = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    y.requires_grad_()
    loss = cosent(x, y, torch.tensor([0, 1]), 1.0)
    loss.backward()
    assert loss.item() == pytest.approx(math.log1p(math.e), abs=1e-6)
    assert bool(torch.isfinite(y.grad).all())


def test_objective_compares_the_two_vectors_of_each_example():
    objective, x = CoSENT(weight=0.3, scale=5.0), cloud(6, 2, 4)
    assert (objective.weight, objective.n_views, objective.needs) == (0.3, 1, "scored_pairs")
    found = objective([[x]], GRADED)
    assert found.item() == cosent(x[:, 0], x[:, 1], GRADED, 5.0).item()
    assert objective.counters["undefined"] == 0
    turned = CoSENT(1.0, scale=5.0, more_similar="lower")([[x]], 5.0 - GRADED)
    assert turned.item() == pytest.approx(found.item(), abs=1e-12)


@pytest.mark.parametrize("labels", [torch.ones(1), torch.tensor([2, 2]), torch.full((3,), 0.4)])
def test_a_batch_of_equal_labels_is_zero_and_counted(labels):
    objective, x = CoSENT(1.0), cloud(len(labels), 2, 4).requires_grad_()
    loss = objective([[x]], labels)
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.abs().max() == 0.0
    assert objective.counters["undefined"] == 1


def test_what_is_no_choice_is_refused():
    with pytest.raises(ValueError, match="more_similar must be higher or lower, got 'up'"):
        CoSENT(1.0, more_similar="up")
    with pytest.raises(ValueError, match="scale must be above 0, got 0"):
        CoSENT(1.0, scale=0)
    with pytest.raises(ValueError, match="reads must name one read point"):
        CoSENT(1.0, reads=["all/cls"])
