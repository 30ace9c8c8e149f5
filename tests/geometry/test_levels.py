"""Levels against NumPy's covariance, and closed forms where there is nothing to measure.

N rows, D dimensions, R directions.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.spectra import capped_basis, energy_kept, noise_floor, rms_distance, root
from tests.clouds import correlated as cloud
from tests.clouds import light

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
