"""Supervised contrastive loss against pytorch-metric-learning, loops and placed points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss

from isotrain.objectives.supcon import SupCon, supcon

light = settings(max_examples=25)
LABELS = torch.tensor([0, 1, 1, 0, 2, 1, 2, 2])


def cloud(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) + 0.3


def loop(rows, labels, past, past_labels, tau):
    """Mean over the anchors that have a positive, and how many have none."""
    units = [row / row.norm() for row in [*rows, *past]]
    classes = [*map(int, labels), *map(int, past_labels)]
    losses = []
    for i in range(len(rows)):
        others = [a for a in range(len(units)) if a != i]
        positives = [a for a in others if classes[a] == classes[i]]
        if positives:
            summed = sum(math.exp(float(units[i] @ units[a]) / tau) for a in others)
            terms = [float(units[i] @ units[p]) / tau - math.log(summed) for p in positives]
            losses.append(-sum(terms) / len(terms))
    mean = sum(losses) / len(losses) if losses else 0.0
    return mean, len(rows) - len(losses)


@pytest.mark.parametrize("labels", [LABELS, torch.tensor([0, 1, 2, 0, 3, 4, 1, 5])])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_equals_pytorch_metric_learning_also_where_anchors_are_skipped(labels, tau):
    x = cloud(8, 5).requires_grad_()
    expected, found = SupConLoss(temperature=tau)(x, labels), supcon(x, labels, temperature=tau)
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)
    mine, theirs = torch.autograd.grad(found, x)[0], torch.autograd.grad(expected, x)[0]
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-9)
    floats = x.detach().float()
    expected = SupConLoss(temperature=tau)(floats, labels).item()
    assert supcon(floats, labels, temperature=tau).item() == pytest.approx(
        expected, abs=1e-6, rel=1e-6
    )


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.lists(st.integers(0, 3), max_size=5))
@light
def test_equals_the_loop_with_a_memory(labels, past_labels):
    x, past = cloud(len(labels), 3), cloud(len(past_labels), 3, seed=1)
    found = supcon(x, torch.tensor(labels), past, torch.tensor(past_labels).long(), temperature=0.3)
    expected, _ = loop(x, labels, past, past_labels, 0.3)
    assert found.item() == pytest.approx(expected, abs=1e-11)


def test_placed_points():
    equal = torch.ones(6, 2, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    assert supcon(equal, labels).item() == pytest.approx(math.log(5), abs=1e-12)
    assert supcon(equal, labels * 0).item() == pytest.approx(math.log(5), abs=1e-12)
    more = supcon(equal, labels, equal[:3], labels[:3])
    assert more.item() == pytest.approx(math.log(8), abs=1e-12)
    corners = torch.tensor([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 2, dtype=torch.float64)
    apart = math.log(math.exp(2) + 2) - 2
    found = supcon(corners, torch.tensor([0, 0, 1, 1]), temperature=0.5)
    assert found.item() == pytest.approx(apart, abs=1e-12)


@given(st.integers(0, 10**6))
@light
def test_lengths_order_rotation_and_names_of_classes_change_nothing(seed):
    x = cloud(8, 3, seed=seed)
    before = supcon(x, LABELS).item()
    scaled = supcon(x * torch.linspace(0.1, 9.0, 8, dtype=torch.float64)[:, None], LABELS)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    shuffled = supcon(x[order], LABELS[order])
    turned = supcon(x @ torch.linalg.qr(cloud(3, 3, seed=seed + 1))[0], LABELS)
    renamed = supcon(x, (LABELS + 1) % 3)
    found = [value.item() for value in (scaled, shuffled, turned, renamed)]
    assert found == pytest.approx([before] * 4, abs=1e-9)


def test_has_the_gradient_that_differences_have():
    labels, memory = torch.tensor([0, 1, 0, 2]), cloud(3, 3, seed=1)
    memory_labels = torch.tensor([1, 1, 4])
    assert torch.autograd.gradcheck(
        lambda x: supcon(x, labels, memory, memory_labels, temperature=0.4),
        cloud(4, 3).requires_grad_(),
    )


# The objective


def test_two_views_are_further_positives():
    one, two = cloud(3, 1, 4), cloud(3, 1, 4, seed=1)
    labels = torch.tensor([0, 1, 0])
    objective = SupCon(weight=0.5, width=4, n_views=2)
    assert (objective.weight, objective.n_views, objective.needs) == (0.5, 2, "classes")
    expected = SupConLoss(0.1)(torch.cat([one, two])[:, 0], torch.cat([labels, labels]))
    assert objective([[one], [two]], labels).item() == pytest.approx(expected.item(), abs=1e-11)
    assert objective.counters["anchors_skipped"] == 0
    assert SupCon(1.0, 4).n_views == 1


@pytest.mark.parametrize(
    ("labels", "skipped"), [([0, 1], 2), ([3], 1), ([0, 0, 1], 1), ([0, 1, 2, 1], 2)]
)
def test_anchors_without_a_positive_are_counted(labels, skipped):
    objective = SupCon(1.0, 4, projection="mlp").double()
    x = cloud(len(labels), 1, 4).requires_grad_()
    loss = objective([[x]], torch.tensor(labels))
    loss.backward()
    assert objective.counters["anchors_skipped"].item() == skipped
    rows = objective.project(x).detach()
    assert loss.item() == pytest.approx(loop(rows, labels, [], [], 0.1)[0], abs=1e-11)
    # a zero has a graph that reaches every weight: processes wait for all gradients
    assert objective.projection[0].weight.grad is not None
    assert bool(x.grad.abs().max() > 0) == (skipped < len(labels))


@pytest.mark.parametrize("n_views", [1, 2])
def test_the_memory_is_the_loop_over_the_last_rows(n_views):
    made = {"n_views": n_views, "projection": "mlp", "memory_rows": 7, "temperature": 0.3}
    objective = SupCon(1.0, 4, **made).double()
    seen, seen_labels = [], []
    for step in range(4):
        labels = torch.tensor([step, 0, 2]) % 3
        views = [[cloud(3, 1, 4, seed=10 * step + v)] for v in range(n_views)]
        rows = torch.cat([objective.project(view[0]) for view in views]).detach()
        repeated = labels.tolist() * n_views
        expected, skipped = loop(rows, repeated, seen[-7:], seen_labels[-7:], 0.3)
        assert objective(views, labels).item() == pytest.approx(expected, abs=1e-11)
        assert objective.counters["anchors_skipped"].item() == skipped
        objective.observe(views, labels)
        seen, seen_labels = [*seen, *rows], [*seen_labels, *repeated]
    assert objective.memory.rows().shape == (7, 4)
    twin = SupCon(1.0, 4, **made).double()
    twin.load_state_dict(objective.state_dict())
    assert twin(views, labels).item() == objective(views, labels).item()


def test_half_precision_module_and_boundaries():
    objective = SupCon(1.0, 4, projection="mlp", memory_rows=4).bfloat16()
    x = cloud(4, 1, 4).float().requires_grad_()
    objective.observe([[x]], torch.tensor([0, 1, 0, 1]))
    loss = objective([[x]], torch.tensor([0, 1, 0, 1]))
    loss.backward()
    assert loss.dtype == torch.float32
    assert bool(torch.isfinite(x.grad).all())
    with pytest.raises(ValueError, match="n_views must be 1 or 2, got 3"):
        SupCon(1.0, 4, n_views=3)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        SupCon(1.0, 4, temperature=0)
    with pytest.raises(ValueError, match="memory_rows must be at least 0, got -1"):
        SupCon(1.0, 4, memory_rows=-1)
