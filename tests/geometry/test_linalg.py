"""Leading directions against NumPy's SVD. N rows, D dimensions, R directions."""

import numpy as np
import pytest
import torch

from isotrain.geometry.spectra import leading_directions
from tests.clouds import correlated


def cloud(n, d, seed=0, decay=0.7):
    """Centred rows with a falling spectrum, so that the leading subspace is well separated."""
    x = correlated(n, d, seed, decay=decay)
    return x - x.mean(dim=0)


def svd_basis(x, r):
    return torch.from_numpy(np.linalg.svd(x.double().numpy(), full_matrices=False)[2][:r].T.copy())


def projector_distance(a, b):
    return float((a.double() @ a.double().T - b @ b.T).norm())


@pytest.mark.parametrize(("n", "d"), [(8, 24), (24, 24), (25, 24), (200, 24), (5, 3), (40, 128)])
@pytest.mark.parametrize("r", [1, 2, 3])
def test_equals_the_svd(n, d, r):
    x = cloud(n, d, seed=n * 31 + d)
    basis_DR = leading_directions(x, r)
    assert basis_DR.shape == (d, r)
    assert projector_distance(basis_DR, svd_basis(x, r)) < 1e-9
    eye_RR = torch.eye(r, dtype=x.dtype)
    torch.testing.assert_close(basis_DR.T @ basis_DR, eye_RR, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("n", "d"), [(32, 256), (512, 64)])
def test_float32_is_close_to_float64_on_a_falling_spectrum(n, d):
    x = cloud(n, d, seed=3, decay=0.6)
    assert projector_distance(leading_directions(x.float(), 3), svd_basis(x, 3)) < 2e-4


@pytest.mark.parametrize(("n", "d"), [(12, 40), (60, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_past_the_rank_are_zero(n, d, dtype):
    generator = torch.Generator().manual_seed(4)
    left = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    x = left @ torch.randn(2, d, generator=generator, dtype=torch.float64)
    x = (x - x.mean(dim=0)).to(dtype)
    basis_DR = leading_directions(x, 5)
    length_R = basis_DR.norm(dim=0)
    torch.testing.assert_close(length_R, torch.tensor([1.0, 1, 0, 0, 0], dtype=dtype))
    assert torch.equal(basis_DR[:, 2:], torch.zeros(d, 3, dtype=dtype))
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    assert projector_distance(basis_DR[:, :2], svd_basis(x, 2)) < tolerance


@pytest.mark.parametrize(("n", "r"), [(1, 2), (3, 2), (9, 2), (0, 2), (5, 0), (0, 0)])
def test_rows_without_scatter_give_zero_columns(n, r):
    assert torch.equal(leading_directions(torch.zeros(n, 4), r), torch.zeros(4, r))


@pytest.mark.parametrize(("n", "d"), [(64, 768), (512, 64)])
def test_an_outlier_direction_200_times_the_next_does_not_hide_it(n, d):
    # Eigenvalue ratio 2.5e-5: two hundred times float32 rounding, so not "within rounding".
    generator = torch.Generator().manual_seed(7)
    k = min(n, d) - 1
    left, _ = torch.linalg.qr(torch.randn(n, k + 1, generator=generator, dtype=torch.float64))
    left = left - left.mean(dim=0)
    left, _ = torch.linalg.qr(left[:, :k])
    right, _ = torch.linalg.qr(torch.randn(d, k, generator=generator, dtype=torch.float64))
    scale_K = torch.full((k,), 0.2, dtype=torch.float64)
    scale_K[:2] = torch.tensor([200.0, 1.0])
    x = (left * scale_K) @ right.T
    basis_DR = leading_directions(x.float(), 2)
    assert projector_distance(basis_DR, svd_basis(x, 2)) < 0.05
