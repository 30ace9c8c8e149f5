"""SimCSE against sentence-transformers, pytorch-metric-learning, loops and placed points."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import NTXentLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from isotrain.geometry.rows import wide
from isotrain.objectives.dcl import DCL
from isotrain.objectives.simcse import SimCSE, simcse
from isotrain.training.extra_losses import ExtraLosses
from isotrain.types import Batch, ModelOutput

light = settings(max_examples=25)


def cloud(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype) + 0.3


def cosine(x, y):
    return float(x @ y / (x.norm() * y.norm()))


def loop(anchors, positives, negatives, memory, tau, alpha=0.0, decoupled=False):
    """One direction of InfoNCE, term by term."""
    total = 0.0
    for i, anchor in enumerate(anchors):
        own = math.exp(cosine(anchor, positives[i]) / tau)
        summed = 0.0
        for j in range(len(positives)):
            if not (decoupled and i == j):
                summed += math.exp(cosine(anchor, positives[j]) / tau)
            for negative in negatives[j]:
                weight = alpha if i == j else 0.0
                summed += math.exp(cosine(anchor, negative) / tau + weight)
        summed += sum(math.exp(cosine(anchor, row) / tau) for row in memory)
        total += math.log(summed) - math.log(own)
    return total / len(anchors)


@pytest.mark.parametrize("n_negatives", [0, 1, 3])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("n", "d", "tau"), [(2, 3, 0.05), (8, 16, 0.05), (5, 4, 0.5)])
def test_equals_sentence_transformers(n, d, tau, symmetric, n_negatives):
    columns = [cloud(n, d, seed=s).requires_grad_() for s in range(2 + n_negatives)]
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    oracle = MultipleNegativesRankingLoss(None, scale=1 / tau, **(both if symmetric else {}))
    expected = oracle.compute_loss_from_embeddings(columns, None)
    negatives = torch.stack(columns[2:], dim=1) if n_negatives else None
    found = simcse(*columns[:2], negatives, temperature=tau, symmetric=symmetric)
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)
    mine, theirs = (torch.autograd.grad(loss, columns) for loss in (found, expected))
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-9)
    floats = [column.detach().float() for column in columns]
    negatives = torch.stack(floats[2:], dim=1) if n_negatives else None
    found = simcse(*floats[:2], negatives, temperature=tau, symmetric=symmetric)
    theirs = oracle.compute_loss_from_embeddings(floats, None).item()
    assert found.item() == pytest.approx(theirs, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("n", [2, 6])
def test_equals_pytorch_metric_learning(n):
    x, y, labels = cloud(n, 5), cloud(n, 5, seed=1), torch.arange(n)
    expected = NTXentLoss(temperature=0.2)(x, labels, ref_emb=y, ref_labels=labels.clone())
    assert simcse(x, y, temperature=0.2).item() == pytest.approx(expected.item(), abs=1e-11)


@pytest.mark.parametrize("alpha", [0.0, 1.5, -0.7])
@pytest.mark.parametrize("h", [0, 1, 2])
@pytest.mark.parametrize("m", [0, 4])
def test_equals_the_loop_with_memory_and_weighted_negatives(m, h, alpha):
    x, y, memory = cloud(4, 3), cloud(4, 3, seed=1), cloud(m, 3, seed=3)
    negatives = cloud(4, h, 3, seed=2)
    options = {"temperature": 0.3, "hard_negative_weight": alpha}
    forward = loop(x, y, negatives, memory, 0.3, alpha)
    back = loop(y, x, [[]] * 4, memory, 0.3)
    found = simcse(x, y, negatives, memory, **options)
    assert found.item() == pytest.approx(forward, abs=1e-11)
    found = simcse(x, y, negatives, memory, symmetric=True, **options)
    assert found.item() == pytest.approx((forward + back) / 2, abs=1e-11)
    parts = (part.float() for part in (x, y, negatives, memory))
    assert simcse(*parts, **options).item() == pytest.approx(forward, abs=3e-6)


@pytest.mark.parametrize("n", [2, 5])
def test_placed_points(n):
    equal, eye = torch.ones(n, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    assert simcse(equal, 3 * equal).item() == pytest.approx(math.log(n), abs=1e-12)
    more = simcse(equal, equal, equal[:, None], equal[:1])
    assert more.item() == pytest.approx(math.log(2 * n + 1), abs=1e-12)
    won = math.log(math.exp(2.0) + n - 1) - 2.0
    assert simcse(eye, 7 * eye, temperature=0.5).item() == pytest.approx(won, abs=1e-12)
    assert simcse(eye, eye.roll(1, 0), temperature=0.5).item() == pytest.approx(won + 2, abs=1e-12)


@given(st.integers(0, 10**6), st.floats(0.01, 100))
@light
def test_lengths_order_and_rotation_of_rows_change_nothing(seed, factor):
    x, y, negatives = cloud(4, 3, seed=seed), cloud(4, 3, seed=seed + 1), cloud(4, 2, 3, seed=seed)
    options = {"temperature": 0.2, "symmetric": True, "hard_negative_weight": 0.4}
    before = simcse(x, y, negatives, **options).item()
    scaled = simcse(factor * x, y / factor, factor * negatives, **options).item()
    order = torch.tensor([2, 0, 3, 1])
    shuffled = simcse(x[order], y[order], negatives[order].flip(1), **options).item()
    turn = torch.linalg.qr(cloud(3, 3, seed=seed + 2))[0]
    turned = simcse(x @ turn, y @ turn, negatives @ turn, **options).item()
    assert [scaled, shuffled, turned] == pytest.approx([before] * 3, abs=1e-9)


def test_has_the_gradient_that_differences_have():
    parts = [cloud(3, 4, seed=1), cloud(3, 4, seed=2), cloud(3, 2, 4, seed=3)]
    leaves = [part.requires_grad_() for part in parts]
    memory = cloud(3, 4, seed=4)

    def loss(x, y, negatives):
        return simcse(
            x, y, negatives, memory, temperature=0.4, hard_negative_weight=0.5, symmetric=True
        )

    assert torch.autograd.gradcheck(loss, leaves)


def test_a_zero_row_has_cosine_zero_and_a_finite_gradient():
    x, y = cloud(3, 4), cloud(3, 4, seed=1)
    x[1] = 0.0
    x.requires_grad_()
    loss = simcse(x, y, temperature=0.5)
    loss.backward()
    assert bool(torch.isfinite(x.grad).all())
    zero = simcse(x[1:2].detach(), y[:1], memory_MD=y[1:], temperature=0.5)
    assert zero.item() == pytest.approx(math.log(3))


# The objective

LABELS = torch.zeros(4)


def test_dropout_takes_every_vector_of_both_passes():
    objective = SimCSE(weight=0.4, width=5, temperature=0.1)
    one, two = cloud(4, 2, 5), cloud(4, 2, 5, seed=1)
    assert (objective.weight, objective.n_views, objective.needs) == (0.4, 2, "rows")
    found = objective([[one], [two]], LABELS)
    expected = simcse(one.reshape(8, 5), two.reshape(8, 5), temperature=0.1)
    assert found.item() == expected.item()
    assert objective.counters["anchors_skipped"] == 0
    tokens = objective([[one.reshape(8, 5)], [two.reshape(8, 5)]], LABELS)
    assert tokens.item() == expected.item()


def test_pair_takes_anchor_positive_and_hard_negatives_of_each_example():
    objective = SimCSE(
        1.0, 5, positives="pair", symmetric=True, hard_negative_weight=0.8, temperature=0.2
    )
    x = cloud(4, 4, 5)
    assert (objective.n_views, objective.needs) == (1, "pairs")
    expected = loop(x[:, 0], x[:, 1], x[:, 2:], [], 0.2, 0.8) + loop(
        x[:, 1], x[:, 0], [[]] * 4, [], 0.2
    )
    assert objective([[x]], LABELS).item() == pytest.approx(expected / 2, abs=1e-11)


@pytest.mark.parametrize(
    ("options", "p", "skipped"),
    [
        ({}, 2, 1),
        ({"symmetric": True}, 2, 2),
        ({"symmetric": True}, 3, 1),  # the way back has no hard negatives
        ({}, 3, 0),
    ],
)
def test_an_anchor_without_a_negative_is_counted(options, p, skipped):
    objective = SimCSE(1.0, 5, positives="pair", **options)
    x = cloud(1, p, 5).requires_grad_()
    loss = objective([[x]], LABELS[:1])
    loss.backward()
    assert objective.counters["anchors_skipped"].item() == skipped
    assert (loss.item() == 0.0) == (p == 2)
    assert bool(x.grad.abs().max() > 0) == (p == 3)


def test_the_projection_stands_in_front():
    objective = SimCSE(1.0, 5, projection="mlp", temperature=0.1).double()
    one, two = cloud(4, 1, 5), cloud(4, 1, 5, seed=1)
    linear = objective.projection[0]
    projected = [torch.tanh(x[:, 0] @ linear.weight.T + linear.bias) for x in (one, two)]
    loss = objective([[one], [two]], LABELS)
    assert loss.item() == pytest.approx(simcse(*projected, temperature=0.1).item(), abs=1e-12)
    loss.backward()
    assert linear.weight.grad.abs().max() > 0


@pytest.mark.parametrize("positives", ["dropout", "pair"])
@pytest.mark.parametrize("projection", ["none", "mlp"])
def test_the_memory_is_the_loop_over_the_last_rows(positives, projection):
    torch.manual_seed(0)
    objective = SimCSE(
        1.0, 4, positives=positives, projection=projection, memory_rows=7, temperature=0.3
    ).double()
    seen = []
    for step in range(4):
        p = 1 if positives == "dropout" else 2
        views = [[cloud(3, p, 4, seed=10 * step + v)] for v in range(objective.n_views)]
        rows = [objective.project(view[0]).detach() for view in views]
        x, y = rows if positives == "dropout" else rows[0].reshape(3, 2, 4).unbind(dim=1)
        expected = loop(x, y, [[]] * 3, seen[-7:], 0.3)
        assert objective(views, LABELS[:3]).item() == pytest.approx(expected, abs=1e-11)
        objective.observe(views, LABELS[:3])
        seen += [row / row.norm() for row in y]
        if projection == "mlp":  # what is held stays as it was projected then
            with torch.no_grad():
                objective.projection[0].weight.mul_(-0.5)
    assert len(objective.memory.rows()) == 7
    twin = SimCSE(
        1.0, 4, positives=positives, projection=projection, memory_rows=7, temperature=0.3
    ).double()
    twin.load_state_dict(objective.state_dict())
    assert twin(views, LABELS[:3]).item() == objective(views, LABELS[:3]).item()
    assert not objective.memory.rows().requires_grad


def test_the_memory_holds_hard_negatives_and_gives_one_row_its_negatives():
    objective = SimCSE(1.0, 4, positives="pair", symmetric=True, memory_rows=8).double()
    x = cloud(1, 3, 4)
    objective.observe([[x]], LABELS[:1])
    expected = torch.nn.functional.normalize(x[0, 1:], dim=1)
    torch.testing.assert_close(objective.memory.rows(), expected)
    assert objective([[cloud(1, 2, 4, seed=1)]], LABELS[:1]).item() > 0.0
    assert objective.counters["anchors_skipped"] == 0


def output_of(pooled):
    """A batch and a forward pass that has only pooled vectors."""
    n = len(pooled)
    nothing = torch.zeros(n, 1, dtype=torch.int64)
    batch = Batch(nothing, nothing, nothing, nothing, torch.zeros(n), torch.arange(n))
    return batch, ModelOutput((), pooled, torch.zeros(n, 1))


def test_accumulation_remembers_both_micro_batches_once():
    objective = SimCSE(1.0, 4, memory_rows=16)
    extra = ExtraLosses({"simcse": objective})
    second_views = []
    for step in range(2):
        batch, one = output_of(cloud(2, 1, 4, seed=step, dtype=torch.float32))
        two = output_of(cloud(2, 1, 4, seed=5 + step, dtype=torch.float32))[1]
        extra([one, two], batch)
        second_views.append(two.pooled[:, 0])
        assert len(objective.memory.rows()) == 0
    extra.observe()
    expected = torch.nn.functional.normalize(torch.cat(second_views), dim=1)
    torch.testing.assert_close(objective.memory.rows(), expected)
    assert list(extra.state_dict()) == [f"parts.simcse.memory.{name}" for name in (
        "rows_MD", "_extra_state"
    )]  # fmt: skip


def test_half_precision_is_computed_in_float32():
    objective = SimCSE(1.0, 4, projection="mlp", memory_rows=4)
    pooled = [cloud(2, 1, 4, seed=s).bfloat16().requires_grad_() for s in range(2)]
    (batch, one), (_, two) = map(output_of, pooled)
    with torch.autocast("cpu", torch.bfloat16):
        total, logged = ExtraLosses({"simcse": objective})([one, two], batch)
    assert total.item() == objective([[wide(x)] for x in pooled], LABELS[:2]).item()
    total.backward()
    assert all(bool(torch.isfinite(x.grad).all()) for x in pooled)
    assert set(logged) == {"train/simcse", "train/simcse/anchors_skipped"}


def test_what_would_be_ignored_is_refused():
    with pytest.raises(ValueError, match="must be 0 with positives=dropout"):
        SimCSE(1.0, 4, hard_negative_weight=1.0)
    objective = SimCSE(1.0, 4, positives="pair", hard_negative_weight=1.0)
    with pytest.raises(ValueError, match=r"where an example has two vectors, got 1\.0"):
        objective([[cloud(4, 2, 4)]], LABELS)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        SimCSE(1.0, 4, temperature=0.0)
    with pytest.raises(ValueError, match="positives must be dropout or pair, got 'triplet'"):
        SimCSE(1.0, 4, positives="triplet")
    with pytest.raises(ValueError, match="reads must name one read point"):
        SimCSE(1.0, 4, reads=["pooled", "before"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pairs_are_those_whose_label_lies_in_the_interval(dtype):
    generator = torch.Generator().manual_seed(4)
    vectors = torch.randn(5, 3, 4, generator=generator, dtype=dtype)
    labels = torch.tensor([0.0, 1.0, 0.3, 0.9, 0.8])
    options = {"positives": "pair", "hard_negative_weight": 0.5, "memory_rows": 16}
    some = SimCSE(1.0, 4, positive_labels=[0.8, 1.0], **options).to(dtype)
    every = SimCSE(1.0, 4, **options).to(dtype)
    chosen = vectors[[1, 3, 4]]
    for _ in range(2):  # the second time with a memory
        found, expected = some([[vectors]], labels), every([[chosen]], labels[[1, 3, 4]])
        assert found.item() == expected.item()
        some.observe([[vectors]], labels)
        every.observe([[chosen]], labels)
    assert torch.equal(some.memory.rows(), every.memory.rows())
    assert len(some.memory.rows()) == 12
    assert some([[vectors]], labels).item() != every([[vectors]], labels).item()


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_batch_without_a_pair_of_that_label_is_zero_and_counted(decoupled):
    kind = DCL if decoupled else SimCSE
    objective = kind(1.0, 4, positives="pair", positive_labels=[1, 1], projection="mlp")
    vectors = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = objective([[vectors]], torch.zeros(3))
    loss.backward()
    assert loss.item() == 0.0
    assert objective.counters["undefined"].item() == 1.0
    assert objective.counters["anchors_skipped"].item() == 0.0
    assert not vectors.grad.any()
    assert not any(p.grad.any() for p in objective.parameters())
    assert objective([[vectors]], torch.tensor([1, 1, 0])).item() > 0 or decoupled
    assert objective.counters["undefined"].item() == 0.0
    with pytest.raises(ValueError, match="leave it out, or use positives=pair"):
        kind(1.0, 4, positive_labels=[1, 1])
