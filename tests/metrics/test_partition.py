"""Partition isotropy I(W) against the published computation and SciPy's logsumexp."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from isotrain.metrics import partition as module
from isotrain.metrics.partition import partition
from tests import clouds


def cloud(n, d, seed=0, mean=0.0, scale=1.0):
    return clouds.cloud(n, d, seed, mean, low=scale / d, high=scale)


def in_log_space(x):
    """Both signs of every right singular vector, null directions among them."""
    points = x.double().numpy()
    projection = points @ np.linalg.svd(points, full_matrices=True)[2].T
    log_f = np.concatenate([logsumexp(projection, axis=0), logsumexp(-projection, axis=0)])
    return min(float(log_f.min() - log_f.max()), 0.0)


@pytest.mark.parametrize(
    ("n", "d"), [(50, 4), (4, 50), (10, 10), (11, 10), (10, 11), (1, 5), (2, 1)]
)
@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_equals_scipy_on_the_singular_vectors(n, d, mean):
    x = cloud(n, d, seed=n + d, mean=mean)
    assert partition(x).item() == pytest.approx(in_log_space(x), abs=1e-9)


def test_fewer_rows_than_dimensions_counts_the_null_direction():
    x = torch.zeros(3, 8, dtype=torch.float64)
    x[:, 0] = torch.tensor([2.0, 2.0, 2.0])  # one direction; F = 3e², 3e⁻², and 3 off it
    assert partition(x).item() == pytest.approx(-4.0, abs=1e-12)
    spread = torch.zeros(2, 8, dtype=torch.float64)
    spread[0, 0], spread[1, 0] = 3.0, -3.0  # F = 2cosh 3 both ways, and N = 2 in the null space
    assert partition(spread).item() == pytest.approx(-math.log(math.cosh(3.0)), abs=1e-12)


def test_a_null_direction_is_not_added_to_given_directions():
    x = torch.zeros(2, 8, dtype=torch.float64)
    x[0, 0], x[1, 0] = 3.0, -3.0
    given_D1 = torch.eye(8, dtype=torch.float64)[:, :1]
    assert partition(x, directions=given_D1).item() == pytest.approx(0.0, abs=1e-12)


def notebook(w):
    """Rajaee and Pilehvar's form: the non-symmetric solver, then a loop over the columns."""
    directions = np.linalg.eig(w.T @ w)[1]
    sums = [np.exp(w @ directions[:, j]).sum() for j in range(directions.shape[1])]
    return math.log(min(sums) / max(sums)), torch.from_numpy(directions.copy())


@pytest.mark.parametrize(("n", "d"), [(300, 48), (64, 64), (2000, 96)])
@pytest.mark.parametrize("mean", [0.0, 0.5])
def test_as_is_equals_the_notebook_form(n, d, mean):
    x = cloud(n, d, seed=d, mean=mean)
    expected, directions = notebook(x.numpy())
    found = partition(x, signs="as_is", directions=directions.real)
    assert found.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(60, 7), (7, 60)])
def test_blocks_of_columns_change_nothing(n, d, monkeypatch):
    x = cloud(n, d, seed=9, mean=0.4)
    whole = partition(x).item()
    monkeypatch.setattr(module, "BLOCK", 1)
    assert partition(x).item() == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e150, 1e200, 1e300])
@pytest.mark.parametrize("n", [20, 3])
def test_extreme_scales_neither_overflow_nor_underflow(scale, n):
    x = cloud(n, 6, seed=14, mean=0.1)
    # Where exp(scale·p) is one term, or linear, ln I goes with the scale.
    large = partition(x * 1e12).item() / 1e12
    expected = large * scale if scale > 1.0 else 0.0
    found = partition(x * scale).item()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-150)


def test_gradient_on_given_directions():
    x = cloud(7, 3, seed=15).requires_grad_()
    directions = torch.linalg.qr(cloud(3, 3, seed=16)).Q
    assert torch.autograd.gradcheck(lambda rows: partition(rows, directions=directions), x)
    assert torch.autograd.gradcheck(
        lambda rows: partition(rows, signs="as_is", log=False, directions=directions), x
    )


def test_gradient_holds_the_eigenvectors_fixed():
    x = cloud(40, 5, seed=17, mean=0.2).requires_grad_()
    (found,) = torch.autograd.grad(partition(x), x)
    directions = torch.linalg.eigh(x.detach().T @ x.detach()).eigenvectors
    (expected,) = torch.autograd.grad(partition(x, directions=directions), x)
    assert torch.allclose(found, expected, atol=1e-9)


def test_constant_and_repeated_rows():
    row = torch.tensor([3.0, 4.0])  # F = N·exp(±5) along the row, and N across
    assert partition(row.expand(9, 2)).item() == pytest.approx(-10.0, abs=1e-9)
    assert partition(row[None]).item() == pytest.approx(-10.0, abs=1e-9)
    x = cloud(20, 4, seed=18, mean=0.5)
    once = partition(x).item()
    assert partition(x.repeat(3, 1)).item() == pytest.approx(once, abs=1e-9)
