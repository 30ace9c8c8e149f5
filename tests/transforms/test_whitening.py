"""PCA whitening against scikit-learn.

N rows, D width, R directions.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.whitening import Whitening
from isotrain.transforms.zca import ZCA

light = settings(max_examples=25)


def estimate(x, *args, **options):
    """The layer's statistics of a cloud."""
    return Whitening(x.shape[1], *args, **options).estimate(x)


def cloud(n, d, seed=0, mean=0.0, dtype=torch.float64, decay=0.8):
    generator = torch.Generator().manual_seed(seed)
    scale_D = 3.0 * decay ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return (x @ axes + mean).to(dtype)


# --- PCA whitening ----------------------------------------------------------------------------


@pytest.mark.parametrize("r", [1, 3, 8])
def test_equals_scikit_learn_but_for_signs(r):
    x = cloud(100, 8, mean=3.0)
    expected = torch.from_numpy(PCA(n_components=r, whiten=True).fit_transform(x.numpy()))
    y = Whitening(8, epsilon=0.0, n_components=r, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(y[:, :r].abs(), expected.abs(), atol=1e-9, rtol=0)
    assert not y[:, r:].any()


@pytest.mark.parametrize("d", [1, 6, 50])
def test_full_whitening_gives_the_identity_covariance(d):
    x = cloud(60, d, mean=5.0, decay=0.97)
    y = Whitening(d, epsilon=0.0, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(torch.cov(y.T), torch.eye(d).double().squeeze(), atol=1e-10, rtol=0)


@pytest.mark.parametrize(("n", "d"), [(3, 7), (7, 7), (80, 7)])
def test_variances_are_the_soft_ones_in_falling_order(n, d):
    x = cloud(n, d)
    value_D = torch.from_numpy(np.linalg.eigvalsh(np.cov(x.numpy(), rowvar=False))[::-1].copy())
    mean_value = value_D.mean()
    y = Whitening(d, epsilon=0.3, stats="batch")(x)
    expected = torch.diag(mean_value * value_D / (value_D + 0.3 * mean_value))
    torch.testing.assert_close(torch.cov(y.T), expected, atol=1e-9, rtol=0)


@given(st.integers(2, 30), st.integers(1, 10), st.floats(1e-3, 1e3), st.integers(0, 10_000))
@light
def test_cosines_are_those_of_zca_and_signs_do_not_depend_on_the_factor(n, d, factor, seed):
    x = cloud(n, d, seed)
    y, z = Whitening(d, stats="batch")(x), ZCA(d, stats="batch")(x)
    torch.testing.assert_close(y @ y.T, z @ z.T, atol=1e-7, rtol=1e-7)
    scaled = factor * x + 5.0
    again = apply_whitening(scaled, estimate(scaled)) / factor
    torch.testing.assert_close(again.abs(), y.abs(), atol=1e-6, rtol=1e-6)


def test_signs_do_not_depend_on_the_order_of_rows():
    x = cloud(50, 6)
    found = estimate(x.flip(0)).matrix_DD
    torch.testing.assert_close(found, estimate(x).matrix_DD, atol=1e-9, rtol=0)


def test_the_gradient_runs_through_the_rows_and_their_mean():
    x, upstream = cloud(40, 8).requires_grad_(), cloud(40, 8, seed=1)
    Whitening(8, n_components=3, stats="batch")(x).backward(upstream)
    matrix_DD = estimate(x.detach(), n_components=3).matrix_DD
    torch.testing.assert_close(x.grad, (upstream - upstream.mean(dim=0)) @ matrix_DD.T)
