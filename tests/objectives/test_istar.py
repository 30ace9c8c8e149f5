"""The reference covariance of I-STAR: its queue, its pass, its buffers; and extreme scales."""

import pytest
import torch

from isotrain.objectives.istar import IStar, istar
from tests.clouds import normal

ZEROS = torch.zeros(1)


def objective(n_blocks=3, **options):
    return IStar(weight=1.0, width=5, n_blocks=n_blocks, **options).double()


def shrunk_to(x, held, shrinkage):
    return istar(x, torch.cov(held.T), shrinkage).item()


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_extreme_scales_in_single_precision(scale):
    x, reference = normal(30, 6).float(), torch.cov(normal(30, 6, seed=1).T).float()
    assert istar(x * scale).item() == pytest.approx(istar(x).item(), rel=1e-5)
    found = istar(x * scale, reference * scale * scale, 0.5).item()
    assert found == pytest.approx(istar(x, reference, 0.5).item(), rel=1e-5)


def test_the_queue_holds_recent_embeddings_and_its_covariance_is_the_reference():
    made = objective(shrinkage=0.3, reference_rows=64, clouds="each", reads=("all/tokens",))
    steps = [[normal(8, 5, seed=10 * s + c) for c in range(3)] for s in range(12)]
    for step in steps:
        made.observe([step], ZEROS)
    held = [torch.cat([step[c] for step in steps[-8:]]) for c in range(3)]  # 8 a push
    x = [normal(9, 5, seed=100 + c) for c in range(3)]
    expected = sum(shrunk_to(a, b, 0.3) for a, b in zip(x, held, strict=True)) / 3
    assert made([x], ZEROS).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kind", ["one", "two", "equal"])
def test_with_a_reference_a_cloud_without_scatter_is_undefined(kind):
    few = {"one": normal(1, 5), "two": normal(2, 5), "equal": normal(1, 5).repeat(9, 1)}
    made = objective(shrinkage=0.5, clouds="each", reads=("pooled",))
    made.observe([[normal(9, 5)]], ZEROS)
    x = few[kind].requires_grad_()
    loss = made([[x]], ZEROS)
    loss.backward()
    assert (loss.item(), made.counters["undefined"].item()) == (0.0, 1.0)
    assert not x.grad.any()


def test_a_pass_gives_the_reference_of_an_epoch():
    made = objective(shrinkage=0.4, reference="epoch", reference_rows=25)
    assert [made.asks_for_pass(epoch) for epoch in (0, 1)] == [True, True]
    batches = [[normal(7, 5, seed=s), normal(5, 5, seed=s + 50)] for s in range(9)]
    read = iter(batches)
    made.prepare(0, read)
    assert len(list(read)) == 6, "12, 24, 36 embeddings: three batches are enough"
    union, x = torch.cat([torch.cat(points) for points in batches[:3]]), normal(9, 5, seed=77)
    expected = shrunk_to(x, union, 0.4)
    assert made([[x]], ZEROS).item() == pytest.approx(expected, abs=1e-10)
    made.observe([[x]], ZEROS)  # this reference is not a queue
    resumed = objective(shrinkage=0.4, reference="epoch", reference_rows=25)
    resumed.load_state_dict(made.state_dict(), strict=True)
    assert [resumed.asks_for_pass(epoch) for epoch in (0, 1)] == [False, True]
    assert resumed([[x]], ZEROS).item() == pytest.approx(expected, abs=1e-10)
    made.prepare(1, iter(batches[4:]))
    assert made.asks_for_pass(1) is False
    assert made([[x]], ZEROS).item() != pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "options", [{"shrinkage": 0.0, "reference": "epoch"}, {"reference": "queue"}]
)
def test_no_pass_is_asked_for_that_would_change_nothing(options):
    assert objective(**options).asks_for_pass(0) is False


def test_the_buffers_are_as_many_as_the_clouds():
    made = objective(clouds="each", reads=("pooled", "all/cls", "layer_0/tokens"), n_blocks=4)
    assert len(made.reference_CDD) == len(made.queues) == 6
    assert len(objective(clouds="union", reads=("pooled", "all/cls")).reference_CDD) == 1
    assert len(objective(clouds="each", shrinkage=0.0).queues) == 0
