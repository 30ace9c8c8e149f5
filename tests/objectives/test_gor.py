"""Global orthogonal regularisation against sentence-transformers and a double loop."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import GlobalOrthogonalRegularizationLoss

from isotrain.objectives.gor import GOR, gor

SHAPES = [(2, 2), (2, 9), (12, 5), (5, 12), (30, 3)]


def cloud(n, d, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


def published(columns, **weights):
    loss = GlobalOrthogonalRegularizationLoss(torch.nn.Identity(), **weights)
    return sum(loss.compute_loss_from_embeddings(columns).values())


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.0, 1.0), (2.0, 0.5)])
def test_equals_sentence_transformers_with_its_gradient(n, d, weights):
    options = dict(zip(("mean_weight", "second_moment_weight"), weights, strict=True))
    x = cloud(n, d, seed=n).requires_grad_()
    expected, found = published([x], **options), gor(x, **options)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
    both = [torch.autograd.grad(loss, x)[0] for loss in (expected, found)]
    torch.testing.assert_close(both[1], both[0], rtol=1e-9, atol=1e-12)
    assert gor(x.float(), **options).item() == pytest.approx(expected.item(), abs=1e-6)


def test_each_vector_of_an_example_is_a_column():
    vectors, tokens = cloud(24, 5).reshape(8, 3, 5), cloud(11, 5, seed=2)
    objective = GOR(weight=1.0, reads=("pooled", "layer_1/tokens"), mean_weight=0.5)
    columns = [*vectors.unbind(1), tokens]
    expected = published(columns, mean_weight=0.5).item()
    assert objective([[vectors, tokens]], torch.zeros(8)).item() == pytest.approx(
        expected, abs=1e-12
    )
    assert gor(vectors.reshape(24, 5)).item() != pytest.approx(expected, abs=1e-3)


def test_double_loop():
    x = cloud(6, 4, seed=3)
    cosines = [
        torch.nn.functional.cosine_similarity(x[i], x[j], dim=0).item()
        for i in range(6)
        for j in range(6)
        if i != j
    ]
    mean, second = sum(cosines) / 30, sum(c * c for c in cosines) / 30
    assert gor(x).item() == pytest.approx(mean**2 + max(0.0, second - 0.25), abs=1e-12)


def test_placed_points():
    assert gor(torch.ones(5, 4)).item() == pytest.approx(1.75, abs=1e-6)
    assert gor(torch.eye(4)).item() == 0.0
    opposite = torch.tensor([[1.0, 0.0], [-2.0, 0.0]])
    assert gor(opposite).item() == pytest.approx(1.0 + 0.5, abs=1e-6)


def test_a_zero_row_has_cosine_zero_and_one_row_counts_as_undefined():
    x = cloud(4, 3)
    x[1] = 0.0
    x.requires_grad_()
    loss = gor(x)
    assert loss.item() == pytest.approx(published([x]).item(), abs=1e-12)
    loss.backward()
    assert bool(torch.isfinite(x.grad).all())
    objective, one = GOR(weight=1.0), cloud(3, 4).reshape(1, 3, 4).requires_grad_()
    loss = objective([[one]], torch.zeros(1))
    loss.backward()
    assert (loss.item(), one.grad.abs().max().item()) == (0.0, 0.0)
    assert objective.counters["undefined"].item() == 3.0
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        gor(cloud(1, 4))


def test_steps_spread_the_rows():
    x = torch.nn.Parameter(cloud(20, 8, mean=1.0))
    values = []
    for _ in range(5):
        loss = gor(x)
        values.append(loss.item())
        (gradient,) = torch.autograd.grad(loss, x)
        x.data -= 5.0 * gradient
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.7 * values[0]
