"""The spectral penalty against eigenvalues and the autograd of their decomposition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from isotrain.metrics.isoscore import isoscore
from isotrain.objectives.spectral import Spectral, spectral


def cloud(n, d, seed=0, mean=1.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def by_eigenvalues(x, k):
    value = torch.linalg.eigvalsh(torch.cov(x.T))
    return value[-k:].sum() / value.sum()


@pytest.mark.parametrize(("n", "d"), [(5, 4), (30, 6), (6, 30), (12, 12)])
@pytest.mark.parametrize("k", [1, 3])
def test_value_and_gradient_are_those_of_the_eigenvalues(n, d, k):
    x = cloud(n, d, seed=n).requires_grad_()
    expected, found = by_eigenvalues(x, k), spectral(x, k)
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)
    both = [torch.autograd.grad(loss, x)[0] for loss in (expected, found)]
    torch.testing.assert_close(both[1], both[0], rtol=1e-7, atol=1e-10)
    assert spectral(x.float(), k).item() == pytest.approx(expected.item(), abs=2e-6)


def test_equals_scikit_learn():
    x = cloud(200, 12)
    share = PCA(4, svd_solver="full").fit(x.numpy()).explained_variance_ratio_.sum()
    assert spectral(x, 4).item() == pytest.approx(share, abs=1e-12)


def test_placed_points():
    axes = torch.cat([torch.eye(4), -torch.eye(4)])
    assert spectral(axes, 1).item() == pytest.approx(0.25, abs=1e-6)
    assert spectral(axes, 3).item() == pytest.approx(0.75, abs=1e-6)
    line = torch.arange(5.0)[:, None] * torch.ones(4)
    assert spectral(line).item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("n", "d", "k"), [(8, 4, 1), (8, 4, 2), (5, 9, 1), (5, 9, 3)])
def test_gradcheck(n, d, k):
    assert torch.autograd.gradcheck(lambda x: spectral(x, k), cloud(n, d).requires_grad_())


def test_repeated_eigenvalues_have_a_finite_gradient():
    x = torch.cat([torch.eye(4), -torch.eye(4)]).double().requires_grad_()
    spectral(x, 2).backward()
    assert bool(torch.isfinite(x.grad).all())
    assert x.grad.abs().max().item() > 0
    inside = torch.tensor([[3.0, 0, 0], [0, 3.0, 0], [0, 0, 1.0]], dtype=torch.float64)
    x = torch.cat([inside, -inside]).requires_grad_()  # both equal ones on the same side: exact
    assert torch.autograd.gradcheck(lambda rows: spectral(rows, 2), x)


@pytest.mark.parametrize("kind", ["three rows", "equal rows"])
def test_what_says_nothing_is_zero_and_counted(kind):
    x = (cloud(3, 5) if kind == "three rows" else cloud(1, 5).repeat(9, 1)).requires_grad_()
    objective = Spectral(weight=1.0, width=5, reads=("pooled", "layer_1/cls"), n_components=2)
    good = cloud(9, 5)
    loss = objective([[x, good]], torch.zeros(1))
    assert loss.item() == pytest.approx(spectral(good, 2).item() / 2, abs=1e-12)
    assert objective.counters["undefined"].item() == 1.0
    loss.backward()
    assert x.grad.abs().max().item() == 0.0


def test_refusals():
    with pytest.raises(ValueError, match="at least 4 rows, got 3"):
        spectral(cloud(3, 5), 2)
    with pytest.raises(ValueError, match="below the width, got 5 of 5"):
        spectral(cloud(9, 5), 5)
    with pytest.raises(ValueError, match="n_components must be at least 1"):
        Spectral(weight=1.0, width=5, n_components=0)


@pytest.mark.parametrize("weight", [1.0, -1.0])
def test_steps_move_isoscore_in_the_direction_of_the_sign(weight):
    x = torch.nn.Parameter(cloud(40, 6))
    scores = [isoscore(x.detach()).item()]
    for _ in range(6):
        (gradient,) = torch.autograd.grad(weight * spectral(x), x)
        x.data -= 2.0 * gradient
        scores.append(isoscore(x.detach()).item())
    assert (weight * np.diff(scores) > 0).all()
