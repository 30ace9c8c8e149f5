"""Eigenvalues of Gram matrices against NumPy, and what is read off them."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

from isotrain.geometry.levels import root
from isotrain.geometry.spectrum import entropy, shares, spectrum_of


def rows(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 4), (4, 7), (7, 4), (6, 6)])
def test_both_sides_give_the_squared_singular_values(n, d):
    x = rows(n, d)
    wanted = np.zeros(d)
    wanted[: min(n, d)] = np.linalg.svd(x.numpy(), compute_uv=False) ** 2
    for gram in (x @ x.T, x.T @ x):
        found = spectrum_of(gram, d, min(n, d))
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)
        assert bool((found[min(n, d) :] == 0).all())


def test_rounding_below_the_cut_is_zero_and_signal_above_it_is_kept():
    eps = torch.finfo(torch.float64).eps
    diagonal = torch.tensor([1.0, 20 * eps, 4 * eps, 0.0], dtype=torch.float64)
    assert spectrum_of(torch.diag(diagonal), 4, 4).tolist() == [
        1.0,
        pytest.approx(20 * eps, rel=1e-6),
        0.0,  # not above D·eps·λ₁
        0.0,
    ]
    assert spectrum_of(torch.diag(-diagonal), 4, 4).tolist()[1:] == [0.0, 0.0, 0.0]


def test_zero_and_empty():
    assert spectrum_of(torch.zeros(3, 3), 3, 3).tolist() == [0.0, 0.0, 0.0]
    assert spectrum_of(torch.zeros(1, 1), 4, 0).tolist() == [0.0] * 4


@pytest.mark.parametrize("matrix", [torch.eye(4), torch.diag(torch.tensor([2.0, 2.0, 1.0, 0.0]))])
def test_gradient_is_finite_for_equal_eigenvalues(matrix):
    gram = matrix.double().requires_grad_()
    spectrum = spectrum_of(gram, 4, 4)
    (spectrum.sum() + root(spectrum).sum()).backward()
    assert bool(gram.grad.isfinite().all())
    assert float(gram.grad.abs().max()) > 0


def test_shares():
    assert shares(torch.tensor([3.0, 1.0, 0.0])).tolist() == [0.75, 0.25, 0.0]
    assert shares(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    tiny = shares(torch.full((2,), 1e-300, dtype=torch.float64))
    assert tiny.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("seed", range(3))
def test_entropy_equals_scipy(seed):
    share = rows(1, 9, seed).abs().flatten()
    share[3] = 0.0
    share = share / share.sum()
    assert entropy(share).item() == pytest.approx(scipy_entropy(share.numpy()), abs=1e-13)


def test_entropy_at_the_ends():
    assert entropy(torch.tensor([1.0, 0.0])).item() == 0.0
    assert entropy(torch.zeros(3)).item() == 0.0
    uniform = torch.full((8,), 0.125, dtype=torch.float64)
    assert entropy(uniform).item() == pytest.approx(math.log(8), abs=1e-15)
    share = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
    entropy(share).backward()
    assert share.grad[:2].tolist() == [pytest.approx(math.log(2) - 1)] * 2
    assert bool(share.grad.isfinite().all())
