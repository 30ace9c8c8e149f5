"""SimCSE, DCL and SupCon against slow loops: hard negatives, projection, no negative."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from isotrain.objectives.dcl import DCL, dcl
from isotrain.objectives.projection import Projected, build_projection
from isotrain.objectives.simcse import SimCSE, simcse
from isotrain.objectives.supcon import SupCon, supcon
from tests.clouds import normal

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
ZEROS = torch.zeros(4)
BOTH_KINDS = pytest.mark.parametrize(("kind", "loss"), [(SimCSE, simcse), (DCL, dcl)])


def cosine(x, y):
    return cosine_similarity(x, y, dim=0)


def loop(anchors, positives, negatives, tau, alpha=0.0, decoupled=False):
    """One direction of InfoNCE, term by term."""
    losses = []
    for i, a in enumerate(anchors):
        logits = []
        for j, p in enumerate(positives):
            logits += [cosine(a, p) / tau] * (not (decoupled and i == j))
            logits += [cosine(a, n) / tau + alpha * (i == j) for n in negatives[j]]
        losses.append(torch.stack(logits).logsumexp(dim=0) - cosine(a, positives[i]) / tau)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("h", [0, 1, 2])
@pytest.mark.parametrize(("n", "alpha"), [(2, 0.0), (5, 0.6), (4, -0.7)])
@BOTH_KINDS
def test_value_and_gradient_are_those_of_the_loop(kind, loss, n, alpha, h, symmetric):
    leaves = [normal(n, 4), normal(n, 4, seed=1), normal(n, h, 4, seed=2)]
    x, y, negatives = (leaf.requires_grad_() for leaf in leaves)
    decoupled = kind is DCL
    expected = loop(x, y, negatives, 0.2, alpha, decoupled)
    if symmetric:
        back = loop(y, x, [[]] * n, 0.2, decoupled=decoupled)
        expected = (expected + back) / 2
    options = {"temperature": 0.2, "hard_negative_weight": alpha, "symmetric": symmetric}
    found = loss(x, y, negatives, **options)
    assert found.item() == pytest.approx(expected.item(), abs=1e-10)
    mine, theirs = (
        torch.autograd.grad(value, leaves[: 2 + (h > 0)]) for value in (found, expected)
    )
    torch.testing.assert_close(mine, theirs, **CLOSE)
    if alpha == 0.0:  # hard negatives weigh as others by default
        assert torch.equal(loss(x, y, negatives, temperature=0.2, symmetric=symmetric), found)


def test_dcl_names_the_options_of_simcse():
    own, whole = (dict(inspect.signature(loss).parameters) for loss in (dcl, simcse))
    del whole["decoupled"]
    assert own == whole


def test_the_default_temperature_is_a_twentieth():
    x, y = normal(4, 4), normal(4, 4, seed=1)
    for loss, kind in ((simcse, SimCSE), (dcl, DCL)):
        assert torch.equal(loss(x, y), loss(x, y, temperature=0.05))
        assert kind(1.0, 4).temperature == 0.05


@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_dcl_is_simcse_without_the_share_of_the_positive(tau):
    """ln(e^own + rest) = ln(rest) + ln(1 + e^own/rest), anchor by anchor."""
    x, y = normal(6, 4), normal(6, 4, seed=1)
    for i in range(6):
        others = {"negatives_NHD": torch.cat([y[:i], y[i + 1 :]])[None], "temperature": tau}
        less, whole = (loss(x[i : i + 1], y[i : i + 1], **others).item() for loss in (dcl, simcse))
        assert whole == pytest.approx(less + math.log1p(math.exp(-less)), abs=1e-11)


def supcon_loop(rows, labels, tau):
    """Mean over the anchors that have a positive."""
    losses = []
    for i in range(len(rows)):
        others = [a for a in range(len(rows)) if a != i]
        logits = {a: float(cosine(rows[i], rows[a])) / tau for a in others}
        if positives := [a for a in others if labels[a] == labels[i]]:
            log_sum = math.log(sum(map(math.exp, logits.values())))
            losses.append(sum(log_sum - logits[p] for p in positives) / len(positives))
    return sum(losses) / max(1, len(losses))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7))
@settings(max_examples=25)
def test_supcon_equals_the_loop(labels):
    x = normal(len(labels), 3)
    found = supcon(x, torch.tensor(labels), temperature=0.3)
    expected = supcon_loop(x, labels, 0.3)
    assert found.item() == pytest.approx(expected, abs=1e-11)
    assert torch.equal(
        supcon(x, torch.tensor(labels)), supcon(x, torch.tensor(labels), temperature=0.1)
    )


# The classes


def test_dropout_takes_every_vector_of_both_passes():
    objective = SimCSE(weight=0.4, width=5, temperature=0.1)
    one, two = normal(4, 2, 5), normal(4, 2, 5, seed=1)
    assert (objective.weight, objective.n_views, objective.needs) == (0.4, 2, "rows")
    expected = simcse(one.reshape(8, 5), two.reshape(8, 5), temperature=0.1)
    for shape in ((4, 2, 5), (8, 5)):
        found = objective([[one.reshape(shape)], [two.reshape(shape)]], ZEROS)
        assert found.item() == expected.item()
    assert objective.counters["anchors_skipped"] == 0


def test_two_views_of_supcon_are_further_positives():
    one, two, labels = normal(3, 1, 4), normal(3, 1, 4, seed=1), torch.tensor([0, 1, 0])
    objective = SupCon(weight=0.5, width=4, n_views=2)
    assert (objective.n_views, objective.needs, SupCon(1.0, 4).n_views) == (2, "classes", 1)
    expected = supcon(torch.cat([one, two])[:, 0], torch.cat([labels, labels]))
    assert objective([[one], [two]], labels).item() == expected.item()


def test_pairs_are_anchor_positive_and_hard_negatives_of_each_example():
    options = {"positives": "pair", "hard_negative_weight": 0.8, "temperature": 0.2}
    objective, x = SimCSE(1.0, 5, symmetric=True, **options), normal(4, 4, 5)
    assert (objective.n_views, objective.needs) == (1, "pairs")
    expected = loop(x[:, 0], x[:, 1], x[:, 2:], 0.2, 0.8) + loop(x[:, 1], x[:, 0], [[]] * 4, 0.2)
    assert objective([[x]], ZEROS).item() == pytest.approx(expected.item() / 2, abs=1e-11)


@pytest.mark.parametrize(
    ("symmetric", "p", "skipped"),  # the way back has no hard negatives
    [(False, 2, 1), (True, 2, 2), (True, 3, 1), (False, 3, 0)],
)
@BOTH_KINDS
def test_an_anchor_without_a_negative_is_counted(kind, loss, symmetric, p, skipped):
    objective = kind(1.0, 5, positives="pair", symmetric=symmetric)
    x = normal(1, p, 5).requires_grad_()
    found = objective([[x]], ZEROS[:1])
    found.backward()
    assert objective.counters["anchors_skipped"].item() == skipped
    assert (found.item() == 0.0) == (p == 2)
    assert bool(x.grad.abs().max() > 1e-9) == (p == 3)
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize(
    ("labels", "skipped"), [([0, 1], 2), ([3], 1), ([0, 0, 1], 1), ([0, 1, 2, 1], 2)]
)
def test_anchors_without_a_positive_are_counted(labels, skipped):
    objective = SupCon(1.0, 4, projection="mlp").double()
    x = normal(len(labels), 1, 4).requires_grad_()
    objective([[x]], torch.tensor(labels)).backward()
    assert objective.counters["anchors_skipped"].item() == skipped
    # a zero has a graph that reaches every weight: processes wait for all gradients
    assert objective.projection[0].weight.grad is not None
    assert bool(x.grad.abs().max() > 0) == (skipped < len(labels))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_chosen_pairs_alone_are_compared(dtype):
    vectors, labels = normal(5, 3, 4, dtype=dtype), torch.tensor([0.0, 1.0, 0.3, 0.9, 0.8])
    options = {"positives": "pair", "hard_negative_weight": 0.5}
    some = SimCSE(1.0, 4, positive_labels=[0.8, 1.0], **options)
    every, chosen = SimCSE(1.0, 4, **options), [1, 3, 4]
    expected = every([[vectors[chosen]]], labels[chosen])
    assert some([[vectors]], labels).item() == expected.item()


# What they share


class Mean(Projected):
    """The least that a contrastive loss adds."""

    def forward(self, views, labels):
        return self.project(views[0][0]).mean()


def test_the_projection_is_a_linear_layer_and_tanh():
    projection, x = build_projection("mlp", 64), normal(5, 64, dtype=torch.float32)
    linear = projection[0]
    torch.testing.assert_close(projection(x), torch.tanh(x @ linear.weight.T))  # no bias yet
    assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert build_projection("none", 64)(x) is x


def test_embeddings_come_in_any_leading_shape_and_leave_wide():
    shared, x = Mean(1.0, 4, ["pooled"], "mlp").bfloat16(), normal(3, 2, 4)
    rows = shared.project(x)
    assert (rows.shape, rows.dtype) == ((6, 4), torch.float32)
    torch.testing.assert_close(rows, shared.project(x.reshape(6, 4)))
    assert Mean(1.0, 4, ["pooled"], "none").project(x).dtype == torch.float64


def test_a_run_trains_the_projection(built):
    names = ("simcse", "cosent", "angle")
    overrides = [f"objective.{n}.weight=0.1" for n in names]
    overrides += ["objective.simcse.projection=mlp"]
    experiment = built(
        "task=stsb", "task.form=bi", "trainer.max_steps=2", "metric=[mean_cosine]",
        "monitor.headline=[mean_cosine]", f"objective=[{','.join(names)}]", *overrides,
    )  # fmt: skip
    simcse = experiment.module.extra.objectives["simcse"]
    before = simcse.projection[0].weight.detach().clone()
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert not torch.equal(simcse.projection[0].weight, before)
    assert bool(torch.isfinite(experiment.trainer.callback_metrics["train/loss"]))
