"""ZCA against NumPy and scikit-learn, closed forms of its map and gradient. N rows, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.zca import ZCA

light = settings(max_examples=25)


def estimate(x, *args, **options):
    """The layer's statistics of a cloud."""
    return ZCA(x.shape[1], *args, **options).estimate(x)


def cloud(n, d, seed=0, mean=0.0, dtype=torch.float64, decay=0.8):
    generator = torch.Generator().manual_seed(seed)
    scale_D = 3.0 * decay ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return (x @ axes + mean).to(dtype)


def slow_zca(x, epsilon, keep_scale=True):
    points = x.double().numpy()
    value, vector = np.linalg.eigh(np.cov(points, rowvar=False))
    mean_value = value.mean()
    matrix = (vector * (value + epsilon * mean_value) ** -0.5) @ vector.T
    scale = mean_value**0.5 if keep_scale else 1.0
    return torch.from_numpy((points - points.mean(axis=0)) @ matrix * scale)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 2.0])
@pytest.mark.parametrize("keep_scale", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 5), (16, 40), (40, 40), (100, 8)])
def test_equals_numpy(n, d, epsilon, keep_scale):
    x = cloud(n, d, mean=4.0)
    y = ZCA(d, epsilon, keep_scale, stats="batch")(x)
    torch.testing.assert_close(y, slow_zca(x, epsilon, keep_scale), atol=1e-9, rtol=0)


def test_without_epsilon_it_is_scikit_learns_whitening_turned_back():
    x = cloud(200, 10, mean=-2.0)
    model = PCA(whiten=True).fit(x.numpy())
    expected = torch.from_numpy(model.transform(x.numpy()) @ model.components_)
    torch.testing.assert_close(apply_whitening(x, estimate(x, 0.0, keep_scale=False)), expected)


@pytest.mark.parametrize("d", [1, 6, 50])
def test_full_whitening_gives_the_identity_covariance(d):
    x = cloud(60, d, mean=5.0, decay=0.97)
    y = ZCA(d, epsilon=0.0, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(torch.cov(y.T), torch.eye(d).double().squeeze(), atol=1e-10, rtol=0)


def test_the_scale_keeps_the_rms_norm_of_centred_rows():
    x = cloud(300, 12, mean=5.0)
    y = ZCA(12, epsilon=0.0, stats="batch")(x)
    ratio = y.norm() / (x - x.mean(dim=0)).norm()
    assert ratio.item() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize(("n", "d"), [(4, 9), (50, 9)])
def test_the_matrix_is_symmetric_positive(n, d):
    matrix_DD = estimate(cloud(n, d), 0.1).matrix_DD
    torch.testing.assert_close(matrix_DD, matrix_DD.T)
    assert float(torch.linalg.eigvalsh(matrix_DD).min()) > 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_directions_that_no_row_has(epsilon):
    """N < D: the factor s/√(ε·λ̄) with ε, none without."""
    x = torch.zeros(8, 12, dtype=torch.float64)
    x[:, :4] = cloud(8, 4)
    matrix_DD = estimate(x, epsilon).matrix_DD
    factor = epsilon**-0.5 if epsilon else 0.0
    expected = factor * torch.eye(8, dtype=torch.float64)
    torch.testing.assert_close(matrix_DD[4:, 4:], expected, atol=1e-9, rtol=0)
    assert float(matrix_DD[:4, 4:].abs().max()) < 1e-9


@given(st.integers(2, 30), st.integers(1, 10), st.floats(1e-3, 1e3), st.integers(0, 10_000))
@light
def test_shifts_go_factors_stay_and_rotations_commute(n, d, factor, seed):
    x = cloud(n, d, seed)
    y = apply_whitening(x, estimate(x))
    axes, _ = torch.linalg.qr(cloud(d, d, seed + 1))
    moved = factor * (x + 7.0) @ axes
    expected = factor * y @ axes
    found = apply_whitening(moved, estimate(moved))
    torch.testing.assert_close(found, expected, atol=1e-7 * factor, rtol=1e-7)


def test_more_epsilon_is_less_whitening():
    x = cloud(400, 8)
    spreads = []
    for epsilon in (0.0, 0.1, 1.0, 1e6):
        value = torch.linalg.eigvalsh(torch.cov(apply_whitening(x, estimate(x, epsilon)).T))
        spreads.append(float(value.max() / value.min()))
    assert spreads[0] == pytest.approx(1.0)
    assert spreads == sorted(spreads)


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e3])
def test_float32_is_close_to_float64(mean):
    x = cloud(256, 32, mean=mean, dtype=torch.float32)
    layer = ZCA(32, stats="batch")
    assert float((layer(x).double() - layer(x.double())).abs().max()) < 1e-5 * max(mean, 10.0)


@pytest.mark.parametrize("n", [6, 40])
def test_the_gradient_runs_through_the_rows_and_their_mean(n):
    x = cloud(n, 8).requires_grad_()
    upstream = cloud(n, 8, seed=1)
    ZCA(8, stats="batch")(x).backward(upstream)
    expected = (upstream - upstream.mean(dim=0)) @ estimate(x.detach()).matrix_DD
    torch.testing.assert_close(x.grad, expected)
