"""Leading directions, noise floors and covariances against NumPy, and closed forms.

N rows, D dimensions, R directions.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.spectra import (
    RunningCovariance,
    capped_basis,
    energy_kept,
    leading_directions,
    noise_floor,
    rms_distance,
    root,
)
from tests.clouds import correlated as cloud
from tests.clouds import light, normal

over_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def leading(x, r):
    """The centred rows, their leading axes and eigenvalues by NumPy."""
    centred = x.numpy() - x.numpy().mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    return torch.from_numpy(centred), torch.from_numpy(axes[:r].T.copy()), singular**2


# --- the noise floor --------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "r"), [(50, 8, 2), (50, 8, 0), (9, 20, 3), (3, 5, 1)])
def test_the_noise_floor_is_the_mean_variance_of_the_dimensions_that_are_left(n, d, r):
    centred, axes, squares = leading(cloud(n, d, seed=n), r)
    value = squares / (n - 1)
    level, share = noise_floor(centred, axes)
    bulk = value[r:].sum() / (d - r)
    assert float(level) == pytest.approx(math.sqrt(bulk), rel=1e-10)
    expected = np.clip(1.0 - np.sqrt(bulk / value[:r]), 0.0, None)
    np.testing.assert_allclose(share.numpy(), expected, rtol=1e-10)
    clipped = centred - (centred @ axes * share) @ axes.T
    after = np.sort(np.linalg.eigvalsh(np.cov(clipped.numpy().T)))[::-1]
    top = [v for v in after if v == pytest.approx(bulk, rel=1e-6)]
    assert len(top) >= r


@over_types
def test_zero_columns_do_not_count(dtype):
    centred, axes, _ = leading(cloud(30, 6), 2)
    centred, axes = centred.to(dtype), axes.to(dtype)
    padded = torch.cat([axes, torch.zeros(6, 3, dtype=dtype)], dim=1)
    level, share = noise_floor(centred, axes)
    padded_level, padded_share = noise_floor(centred, padded)
    torch.testing.assert_close(padded_level, level)
    torch.testing.assert_close(padded_share, torch.cat([share, torch.zeros(3, dtype=dtype)]))


@over_types
def test_where_nothing_is_left_a_direction_goes_whole_and_nothing_is_nan(dtype):
    line = torch.tensor([[2.0, 0.0], [-2.0, 0.0]], dtype=dtype)
    level, share = noise_floor(line, torch.tensor([[1.0], [0.0]], dtype=dtype))
    assert (level.item(), share.tolist()) == (0.0, [1.0])
    level, share = noise_floor(torch.zeros(3, 2, dtype=dtype), torch.eye(2, dtype=dtype))
    assert (level.item(), share.tolist()) == (0.0, [0.0, 0.0])
    level, share = noise_floor(torch.zeros(1, 2, dtype=dtype), torch.zeros(2, 1, dtype=dtype))
    assert (level.item(), share.tolist()) == (0.0, [0.0])
    level, share = noise_floor(torch.zeros(0, 2, dtype=dtype), torch.zeros(2, 0, dtype=dtype))
    assert (level.item(), share.tolist(), level.dtype) == (0.0, [], dtype)


# --- the root ---------------------------------------------------------------------------------


@over_types
def test_root_and_its_gradient_with_zero_for_infinity(dtype):
    x = torch.tensor([9.0, 0.0, 0.25], dtype=dtype, requires_grad=True)
    y = root(x)
    assert y.tolist() == [3.0, 0.0, 0.5]
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([1 / 6, 0.0, 1.0], dtype=dtype))


# --- the cap ----------------------------------------------------------------------------------


@given(st.integers(0, 9), st.integers(1, 100), st.integers(1, 60), st.integers(0, 10))
@light
def test_the_cap_in_exact_arithmetic(n_components, percent, n_rows, rank):
    rank = min(rank, n_components + 1)
    basis = torch.eye(12, dtype=torch.float64)[:, : n_components + 1].clone()
    basis[:, rank:] = 0.0
    kept = capped_basis(basis, percent / 100, n_rows)
    most = max(0, min(n_components, percent * (n_rows - 1) // 100, rank - 1))
    assert kept.shape == (12, n_components)
    assert torch.equal(kept[:, :most], basis[:, :most])
    assert not kept[:, most:].any()


@pytest.mark.parametrize(
    ("rho", "n_rows", "expected"),
    [
        *((0.29, 101, 29), (0.7, 91, 63)),  # 0.29 · 100 falls just below 29 in floating point
        *((0.5, 4.9, 1), (0.5, 5.0, 2)),  # a mean over batches need not be whole
    ],
)
def test_the_cap_of_binary_fractions_and_of_shares_of_a_row(rho, n_rows, expected):
    assert int(capped_basis(torch.eye(99), rho, n_rows).sum()) == expected


# --- distances and energy ---------------------------------------------------------------------


@over_types
@pytest.mark.parametrize("mean", [0.0, 50.0])
def test_rms_distance_is_the_root_of_the_total_variance(dtype, mean):
    x = cloud(40, 5, mean=mean, dtype=dtype)
    expected = math.sqrt(np.cov(x.double().numpy().T, ddof=0).trace())
    assert float(rms_distance(x)) == pytest.approx(expected, rel=1e-5)
    assert rms_distance(x).dtype == dtype
    assert rms_distance(x[:1]).item() == 0.0


@over_types
def test_energy_kept_is_the_ratio_of_scatters_about_their_own_means(dtype):
    before, after = cloud(30, 4, mean=3.0, dtype=dtype), cloud(30, 6, seed=1, dtype=dtype)
    scatters = [np.cov(x.double().numpy().T).trace() for x in (before, after)]
    assert float(energy_kept(before, after)) == pytest.approx(scatters[1] / scatters[0], rel=1e-5)
    assert float(energy_kept(before, 0.5 * before + 9.0)) == pytest.approx(0.25, rel=1e-5)


def test_energy_kept_leaves_out_a_row_that_is_not_finite_on_either_side():
    before, after = cloud(12, 3), cloud(12, 3, seed=1)
    expected = energy_kept(before[2:], after[2:])
    before[0, 1], after[1, 2] = float("nan"), float("inf")
    assert torch.equal(energy_kept(before, after), expected)


def test_energy_kept_without_scatter_is_one_and_without_rows_too():
    assert energy_kept(torch.ones(5, 2), cloud(5, 2).float()).item() == 1.0
    assert energy_kept(cloud(1, 2), cloud(1, 2)).item() == 1.0
    assert energy_kept(torch.zeros(0, 2), torch.zeros(0, 2)).item() == 1.0
    assert not energy_kept(cloud(5, 2).requires_grad_(), cloud(5, 2)).requires_grad


# --- leading directions ---


def falling(n, d, seed=0, decay=0.7):
    """Centred rows with a falling spectrum, so that the leading subspace is well separated."""
    x = cloud(n, d, seed, decay=decay)
    return x - x.mean(dim=0)


def svd_basis(x, r):
    return torch.from_numpy(np.linalg.svd(x.double().numpy(), full_matrices=False)[2][:r].T.copy())


def projector_distance(a, b):
    return float((a.double() @ a.double().T - b @ b.T).norm())


@pytest.mark.parametrize(("n", "d"), [(8, 24), (24, 24), (25, 24), (200, 24), (5, 3), (40, 128)])
@pytest.mark.parametrize("r", [1, 2, 3])
def test_equals_the_svd(n, d, r):
    x = falling(n, d, seed=n * 31 + d)
    basis_DR = leading_directions(x, r)
    assert basis_DR.shape == (d, r)
    assert projector_distance(basis_DR, svd_basis(x, r)) < 1e-9
    eye_RR = torch.eye(r, dtype=x.dtype)
    torch.testing.assert_close(basis_DR.T @ basis_DR, eye_RR, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("n", "d"), [(32, 256), (512, 64)])
def test_float32_is_close_to_float64_on_a_falling_spectrum(n, d):
    x = falling(n, d, seed=3, decay=0.6)
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


# --- a running covariance ---


@pytest.mark.parametrize("mean", [0.0, 1e6])
@pytest.mark.parametrize("sizes", [(20,), (1, 7, 12), (5, 0, 15)])
def test_batches_give_the_covariance_of_all_rows(mean, sizes):
    x, seen = normal(20, 4, mean=mean), RunningCovariance(4)
    for part in x.split(list(sizes)):
        seen.add(part)
    assert seen.n == 20
    torch.testing.assert_close(seen.covariance(), torch.cov(x.T), rtol=1e-8, atol=1e-8)


def test_rows_that_are_not_finite_are_left_out_and_few_rows_have_none():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    seen = RunningCovariance(3)
    assert torch.equal(seen.covariance(), torch.zeros(3, 3, dtype=torch.float64))
    seen.add(x[:1])
    assert torch.equal(seen.covariance(), torch.zeros(3, 3, dtype=torch.float64))
    bad = x.clone()
    bad[4, 1], bad[5, 2] = float("nan"), float("inf")
    seen.add(bad[1:])
    assert seen.n == 4
    torch.testing.assert_close(seen.covariance(), torch.cov(x[:4].double().T))
