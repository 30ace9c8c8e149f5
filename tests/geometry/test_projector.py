"""The projector on leading directions and its gradient: NumPy, finite differences, `eigh`.

N rows, D dimensions, R removed directions.
"""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.projector import leading_projector
from isotrain.geometry.spectra import leading_directions
from tests import clouds
from tests.clouds import light

SHAPES = [(12, 5), (6, 12), (6, 6), (40, 7), (7, 40)]
draw = partial(clouds.normal, mean=0.0)


def orthonormal(n, r, seed=0):
    return torch.linalg.qr(draw(n, r, seed=seed))[0]


def separated(n, d, seed=0, least=1.0):
    """Centred rows whose singular values fall in even steps from 4 to `least`."""
    rank = min(n - 1, d)
    left_NT = draw(n, rank, seed=seed)
    left_NT = torch.linalg.qr(left_NT - left_NT.mean(dim=0))[0]
    value_T = torch.linspace(4.0, least, rank, dtype=torch.float64)
    return left_NT * value_T @ orthonormal(d, rank, seed + 1).T


def on_axes(*lengths):
    """Two opposite rows on each axis: exact eigenvalues, and a mean of exactly zero."""
    half = torch.diag(torch.tensor(lengths, dtype=torch.float64))
    return torch.cat([half, -half])


def by_numpy(x, n_removed):
    """By the whole D × D eigenproblem in float64."""
    x = x.double().numpy()
    top = np.linalg.eigh(x.T @ x)[1][:, x.shape[1] - n_removed :]
    return torch.from_numpy(top @ top.T)


def by_eigh(x, n_removed):
    """The same with the backward of `torch.linalg.eigh`, on the smaller side."""
    n, d = x.shape
    if n <= d:
        value, vector = torch.linalg.eigh(x @ x.T)
        vector = x.T @ vector[:, -n_removed:] / value[-n_removed:].sqrt()
    else:
        vector = torch.linalg.eigh(x.T @ x)[1][:, -n_removed:]
    return vector @ vector.T


def gradient(function, x, *options, seed=5):
    """Of Σ W∘M for a random W that is not symmetric."""
    x = x.detach().clone().requires_grad_()
    matrix = function(x, *options)
    (matrix * draw(*matrix.shape, seed=seed).to(x.dtype)).sum().backward()
    return x.grad


def relative(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


# Values


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_equals_numpy_and_what_the_layer_does(n, d):
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-5)):
        x = separated(n, d).to(dtype)
        for n_removed in (1, 2, 4):
            found = leading_projector(x, n_removed)
            assert found.dtype == dtype
            assert float((found.double() - by_numpy(x, n_removed)).norm()) < tolerance
            basis = leading_directions(x, n_removed)
            torch.testing.assert_close(found, basis @ basis.T, atol=tolerance, rtol=0)


@pytest.mark.parametrize("n_removed", [3, 4, 50])
def test_directions_past_the_rank_do_not_count(n_removed):
    x = separated(4, 9)  # of rank 3
    found = leading_projector(x, n_removed)
    torch.testing.assert_close(found, by_numpy(x, 3), atol=1e-6, rtol=0)
    assert gradient(leading_projector, x, n_removed).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_without_scatter_give_zeros_and_no_gradient(dtype):
    for n, d in ((0, 3), (1, 3), (9, 3), (2, 5)):
        x, none = torch.zeros(n, d, dtype=dtype), torch.zeros(d, d, dtype=dtype)
        for n_removed in (0, 1, 3):
            assert torch.equal(leading_projector(x, n_removed), none), (n, d, n_removed)
            assert torch.equal(gradient(leading_projector, x, n_removed), x)


# Gradient


@pytest.mark.parametrize(("n", "d"), [(12, 5), (5, 12), (6, 6)])
@pytest.mark.parametrize("n_removed", [1, 3])
def test_gradcheck_through_the_mean_as_the_layer_uses_it(n, d, n_removed):
    def layer(rows):
        z = rows - rows.mean(dim=0)
        return z - z @ leading_projector(z, n_removed)

    x = (separated(n, d, seed=3) + draw(d)).requires_grad_()
    assert torch.autograd.gradcheck(layer, x)
    assert torch.autograd.gradcheck(lambda z: leading_projector(z, n_removed), x - x.mean(0))


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_gradient_equals_that_of_eigh_where_eigenvalues_are_apart(n, d):
    x = separated(n, d, seed=7)
    for n_removed in (1, 2, 4):
        expected = gradient(by_eigh, x, n_removed)
        assert relative(gradient(leading_projector, x, n_removed), expected) < 1e-10


@pytest.mark.parametrize(("gap", "tolerance"), [(1e-2, 1e-4), (1e-3, 2e-3)])
def test_the_damping_of_small_gaps_stays_small_in_float32(gap, tolerance):
    x = on_axes(2.0, (4.0 - 4.0 * gap) ** 0.5, 1.0, 0.5).float()
    expected = gradient(by_eigh, x.double(), 1)
    assert relative(gradient(leading_projector, x, 1), expected) < tolerance


INSIDE = [((3, 3, 2, 1, 0.5), 2), ((3, 3, 3, 1, 0.5), 3), ((3, 2, 2, 1, 0.5), 3)]
OUTSIDE = [((3, 2, 1, 1, 1), 1), ((3, 2, 2, 0, 0), 1), ((3, 2, 0, 0, 0), 1)]
ACROSS = [((3, 2, 2, 1, 0.5), 2), ((2, 2, 2, 2, 2), 2)]


@pytest.mark.parametrize(("lengths", "n_removed"), INSIDE + OUTSIDE + ACROSS)
def test_repeated_eigenvalues_are_finite_here_and_nan_in_torch(lengths, n_removed):
    for dtype in (torch.float32, torch.float64):
        x = on_axes(*lengths).to(dtype)
        assert gradient(by_eigh, x, n_removed).isnan().any()
        found = gradient(leading_projector, x, n_removed)
        assert found.isfinite().all()
        assert found.norm() < 10.0


@pytest.mark.parametrize(("lengths", "n_removed"), INSIDE + OUTSIDE)
@pytest.mark.parametrize(("rotate", "wide"), [(False, False), (True, False), (True, True)])
def test_finite_differences_at_repeated_eigenvalues(lengths, n_removed, rotate, wide):
    x = on_axes(*lengths)
    if rotate:  # then they are equal up to rounding only
        x = x @ orthonormal(5, 5, seed=11).T
    if wide:  # the Gram side, with a null space
        x = x @ orthonormal(14, 5, seed=12).T
    towards, weight, step = draw(*x.shape, seed=13), draw(x.shape[1], x.shape[1], seed=5), 1e-5
    ahead, behind = (leading_projector(x + h * towards, n_removed) for h in (step, -step))
    expected = ((ahead - behind) * weight).sum() / (2.0 * step)
    found = (gradient(leading_projector, x, n_removed) * towards).sum()
    assert float(found) == pytest.approx(float(expected), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(("lengths", "n_removed"), ACROSS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tie_up_to_rounding_across_the_boundary_is_bounded(lengths, n_removed, dtype):
    x = (on_axes(*lengths) @ orthonormal(5, 5, seed=11).T).to(dtype)
    largest = 0.5 / torch.finfo(dtype).eps ** (2 / 3)  # of 1/gap, in units of λ_1
    bound = (1.0 + largest) * 2.0 * 5 * float(x.norm()) * max(lengths) ** -2
    assert gradient(leading_projector, x, n_removed).norm() < bound


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e-12), (torch.float32, 1e12)])
def test_tiny_and_huge_rows(dtype, scale):
    x = separated(12, 5, seed=17)
    torch.testing.assert_close(
        leading_projector((x * scale).to(dtype), 2).double(),
        leading_projector(x, 2),
        atol=1e-5,
        rtol=0,
    )
    expected = gradient(leading_projector, x, 2) / scale
    assert relative(gradient(leading_projector, (x * scale).to(dtype), 2), expected) < 1e-4


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 6), st.integers(0, 9999))
@light
def test_invariances_of_any_cloud(n, d, n_removed, seed):
    x = draw(n, d, seed=seed)
    x = x - x.mean(dim=0)
    kept = x.clone()
    matrix = leading_projector(x, n_removed)
    assert torch.equal(matrix, leading_projector(x, n_removed))
    torch.testing.assert_close(matrix, matrix.T)
    value = torch.linalg.eigvalsh(matrix)
    assert value.min() > -1e-9
    assert value.max() < 1.0 + 1e-9
    assert int((value > 1e-6).sum()) <= min(n_removed, n - 1, d)
    torch.testing.assert_close(matrix @ matrix, matrix)
    # M depends on XᵀX alone, and not on its scale: G·Xᵀ is symmetric, with a trace of zero.
    product = gradient(leading_projector, x, n_removed) @ x.T
    size = 1e-6 * (1.0 + float(product.norm()))
    assert float((product - product.T).norm()) < size
    assert abs(float(product.trace())) < size
    assert torch.equal(x, kept)
