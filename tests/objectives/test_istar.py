"""I-STAR against eigenvalues, the published package, and its life with a reference."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from IsoScore import IsoScore

from isotrain.metrics.isoscore import isoscore
from isotrain.objectives.istar import IStar, istar

light = settings(max_examples=20)
SHAPES = [(3, 2), (7, 20), (20, 7), (20, 20), (200, 5)]
ZETAS = [0.0, 0.2, 0.75, 1.0]


def cloud(n, d, seed=0, mean=1.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def covariance(d, seed=9):
    return torch.cov(cloud(3 * d + 2, d, seed).T)


def by_loop(x, reference, shrinkage):
    """The covariance pair by pair of coordinates, its mixture, and its eigenvalues."""
    n, d = x.shape
    mixed = torch.stack(
        [
            torch.stack(
                [
                    (1 - shrinkage)
                    * ((x[:, i] - x[:, i].mean()) @ (x[:, j] - x[:, j].mean()))
                    / (n - 1)
                    + shrinkage * reference[i, j]
                    for j in range(d)
                ]
            )
            for i in range(d)
        ]
    )
    value = torch.linalg.eigvalsh(mixed)
    return 1 - (value.sum() ** 2 / value.square().sum() - 1) / (d - 1)


def objective(width=5, n_blocks=3, **options):
    return IStar(weight=1.0, width=width, n_blocks=n_blocks, **options).double()


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("shrinkage", ZETAS)
def test_value_and_gradient_are_those_of_the_eigenvalues(n, d, shrinkage):
    x, reference = cloud(n, d, seed=n).requires_grad_(), covariance(d)
    expected, found = by_loop(x, reference, shrinkage), istar(x, reference, shrinkage)
    assert found.item() == pytest.approx(expected.item(), abs=1e-10)
    single = istar(x.detach().float(), reference.float(), shrinkage)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(expected.item(), abs=1e-6)
    gradients = [torch.autograd.grad(loss, x)[0] for loss in (expected, found)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-8, atol=1e-11)
    assert bool(gradients[1].abs().max() > 0) == (shrinkage < 1)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("shrinkage", ZETAS)
def test_equals_the_published_package(n, d, shrinkage):
    x, reference = cloud(n, d, seed=1), covariance(d, seed=2)
    published = IsoScore.istar().IsoScore_star(x.clone(), reference, shrinkage, is_eval=False)
    assert istar(x, reference, shrinkage).item() == pytest.approx(1 - published.item(), abs=1e-6)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_the_objective_equals_the_published_package_on_each_cloud_and_on_their_union(shrinkage):
    clouds = [cloud(n, 5, seed=n) for n in (9, 30, 14)]
    assert IsoScore.IsoScore(torch.cat(clouds).numpy()) != IsoScore.IsoScore(clouds[0].numpy())

    def published(x):
        score = IsoScore.istar().IsoScore_star(x.clone(), torch.cov(x.T), shrinkage, is_eval=False)
        return 1 - score.item()

    for kind, expected in (
        ("each", np.mean([published(x) for x in clouds])),
        ("union", published(torch.cat(clouds))),
    ):
        made = objective(shrinkage=shrinkage, clouds=kind, reference_rows=4096)
        for _ in range(2):  # the covariance of the rows themselves: shrinking changes nothing
            found = made([clouds], torch.zeros(3))
            assert found.item() == pytest.approx(float(expected), abs=1e-6)
            made.observe([clouds], torch.zeros(3))


def test_without_a_reference_zeta_acts_as_zero():
    x = cloud(12, 5)
    assert istar(x, None, 0.7).item() == istar(x).item()
    assert istar(x).item() == pytest.approx(1 - isoscore(x).item(), abs=1e-13)


def test_ends_of_the_range():
    axes = torch.cat([torch.eye(4), -torch.eye(4)])
    assert istar(axes).item() == pytest.approx(0.0, abs=1e-6)
    line = torch.arange(5.0)[:, None] * torch.ones(4)
    assert istar(line).item() == pytest.approx(1.0, abs=1e-6)
    assert istar(torch.ones(5, 4)).item() == 1.0


@pytest.mark.parametrize("x", [cloud(6, 4), cloud(4, 6)], ids=["N > D", "N < D"])
def test_gradcheck(x):
    x = x.requires_grad_()
    assert torch.autograd.gradcheck(istar, x)
    reference = covariance(x.shape[1])
    assert torch.autograd.gradcheck(lambda rows: istar(rows, reference, 0.3), x)


def test_gradient_at_equal_eigenvalues_is_finite():
    x = torch.cat([torch.eye(4), -torch.eye(4)]).requires_grad_()
    istar(x).backward()
    assert bool(torch.isfinite(x.grad).all())


@given(st.integers(0, 999), st.floats(-6, 6), st.floats(-100, 100))
@light
def test_invariances(seed, exponent, shift):
    x, reference = cloud(11, 5, seed), covariance(5, seed + 1)
    rotation = torch.linalg.qr(cloud(5, 5, seed + 2))[0]
    expected, scale = istar(x, reference, 0.4).item(), 10.0**exponent
    moved = scale * (x[torch.randperm(11)] @ rotation + shift)
    turned = scale**2 * rotation.T @ reference @ rotation
    assert istar(moved, turned, 0.4).item() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_extreme_scales_in_single_precision(scale):
    x = cloud(30, 6, mean=0.0).float()
    assert istar(x * scale).item() == pytest.approx(istar(x).item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["one row", "two rows", "equal rows"])
@pytest.mark.parametrize("shrinkage", [0.0, 0.5])
def test_without_scatter_the_loss_is_zero_and_counted(kind, shrinkage):
    bad = {"one row": cloud(1, 5), "two rows": cloud(2, 5), "equal rows": cloud(1, 5).repeat(9, 1)}
    x, good = bad[kind].requires_grad_(), cloud(8, 5)
    made = objective(shrinkage=shrinkage, clouds="each", reads=("pooled", "layer_1/tokens"))
    made.observe([[cloud(9, 5), cloud(9, 5)]], torch.zeros(1))
    loss = made([[x, x]], torch.zeros(1))
    loss.backward()
    assert loss.item() == 0.0
    assert made.counters["undefined"].item() == 2.0
    assert x.grad.abs().max().item() == 0.0
    half = made([[x, good]], torch.zeros(1)).item()
    alone = objective(shrinkage=shrinkage, reads=("pooled",))
    alone.observe([[cloud(9, 5)]], torch.zeros(1))
    assert half == pytest.approx(alone([[good]], torch.zeros(1)).item() / 2, abs=1e-12)
    assert made.counters["undefined"].item() == 1.0


def test_the_queue_holds_recent_rows_and_its_covariance_is_the_reference():
    made = objective(shrinkage=0.3, reference_rows=64, clouds="each", reads=("all/tokens",))
    assert made.reference_CDD.shape == (3, 5, 5)
    steps = [[cloud(8, 5, seed=10 * s + c) for c in range(3)] for s in range(12)]
    for step in steps:
        made.observe([step], torch.zeros(1))
    held = [torch.cat([step[c] for step in steps[-8:]]) for c in range(3)]  # 8 rows a push
    x = [cloud(9, 5, seed=100 + c) for c in range(3)]
    expected = np.mean(
        [by_loop(a, torch.cov(b.T), 0.3).item() for a, b in zip(x, held, strict=True)]
    )
    assert made([x], torch.zeros(1)).item() == pytest.approx(float(expected), abs=1e-10)
    fresh = objective(shrinkage=0.3, reference_rows=64, clouds="each", reads=("all/tokens",))
    fresh.load_state_dict(made.state_dict(), strict=True)
    assert fresh([x], torch.zeros(1)).item() == made([x], torch.zeros(1)).item()
    for one in (made, fresh):
        one.observe([steps[0]], torch.zeros(1))
    assert torch.equal(fresh.reference_CDD, made.reference_CDD)


def test_a_call_changes_no_state():
    made = objective()
    made.observe([[cloud(30, 5)]], torch.zeros(1))
    before = deepcopy(made.state_dict())
    made([[cloud(9, 5, seed=3)]], torch.zeros(1))
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_a_pass_gives_the_reference_of_an_epoch():
    made = objective(shrinkage=0.4, reference="epoch", reference_rows=25)
    assert [made.asks_for_pass(epoch) for epoch in (0, 1)] == [True, True]
    batches = [[cloud(7, 5, seed=s), cloud(5, 5, seed=s + 50)] for s in range(9)]
    read = iter(batches)
    made.prepare(0, read)
    assert len(list(read)) == 6, "12, 24, 36 rows: three batches are enough"
    union = torch.cat([torch.cat(places) for places in batches[:3]])
    torch.testing.assert_close(made.reference_CDD[0], torch.cov(union.T), rtol=1e-12, atol=1e-12)
    x = cloud(9, 5, seed=77)
    expected = by_loop(x, torch.cov(union.T), 0.4).item()
    assert made([[x]], torch.zeros(1)).item() == pytest.approx(expected, abs=1e-10)
    made.observe([[x]], torch.zeros(1))  # this reference is not a queue
    assert made([[x]], torch.zeros(1)).item() == pytest.approx(expected, abs=1e-10)
    resumed = objective(shrinkage=0.4, reference="epoch", reference_rows=25)
    resumed.load_state_dict(made.state_dict(), strict=True)
    assert [resumed.asks_for_pass(epoch) for epoch in (0, 1)] == [False, True]
    assert resumed([[x]], torch.zeros(1)).item() == made([[x]], torch.zeros(1)).item()
    made.prepare(1, iter(batches[4:]))
    assert made.asks_for_pass(1) is False
    assert made([[x]], torch.zeros(1)).item() != pytest.approx(expected, abs=1e-6)


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


def test_legal_values():
    for options in (
        {"shrinkage": -0.1},
        {"shrinkage": 1.1},
        {"clouds": "both"},
        {"reference": "none"},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            objective(**options)
    with pytest.raises(ValueError, match="at least 3 rows, got 2"):
        istar(cloud(2, 4))


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_steps_move_isoscore_in_the_direction_of_the_sign(weight):
    made = IStar(weight=weight, width=6, n_blocks=1, reads=("pooled",)).double()
    x = torch.nn.Parameter(cloud(40, 6))
    start = isoscore(x.detach()).item()
    optimizer = torch.optim.SGD([x], lr=2.0)
    scores = [start]
    for _ in range(8):
        optimizer.zero_grad()
        (made.weight * made([[x]], torch.zeros(40))).backward()
        optimizer.step()
        made.observe([[x.detach()]], torch.zeros(40))
        scores.append(isoscore(x.detach()).item())
    steps = np.diff(scores)
    assert (weight * steps > 0).all()
    assert abs(scores[-1] - start) > 0.005
