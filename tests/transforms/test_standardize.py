"""Standardize against scikit-learn, closed forms of its gradient, and its contract.

N rows, D width.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from isotrain.transforms.standardize import Standardize

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.rand(d, generator=generator, dtype=torch.float64) * 3.0 + 0.05
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean
    return x.to(dtype)


def rms_norm(x):
    return x.square().sum(dim=1).mean().sqrt()


@pytest.mark.parametrize(("n", "d"), [(4, 6), (50, 8), (32, 64)])
def test_equals_scikit_learn(n, d):
    x = cloud(n, d)
    y = Standardize(d, epsilon=1e-14, keep_scale=False, stats="batch")(x)
    expected = torch.from_numpy(StandardScaler().fit_transform(x.numpy()))
    torch.testing.assert_close(y, expected, atol=1e-9, rtol=0)


def test_epsilon_is_a_part_of_the_mean_variance():
    x = torch.tensor([[-1.0, 7.0], [1.0, 7.0]], dtype=torch.float64)  # variances 1 and 0
    y = Standardize(2, epsilon=6.0, keep_scale=False, stats="batch")(x)  # 1 + 6·½ = 2²
    torch.testing.assert_close(y, torch.tensor([[-0.5, 0.0], [0.5, 0.0]], dtype=torch.float64))


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 10_000), st.floats(1e-3, 1e3))
@light
def test_rms_norm_is_kept_and_uniform_scale_goes_through(n, d, seed, scale):
    x = cloud(n, d, seed)
    layer = Standardize(d, stats="batch")
    y = layer(x)
    torch.testing.assert_close(rms_norm(y), rms_norm(x))
    torch.testing.assert_close(layer(scale * x), scale * y)
    torch.testing.assert_close(y.mean(dim=0) / rms_norm(y), torch.zeros(d, dtype=torch.float64))
    sd_D = y.std(dim=0, correction=0)
    if float(x.var(dim=0, correction=0).min()) > 0.1 * float(x.var(dim=0).mean()):
        torch.testing.assert_close(sd_D, sd_D.mean().expand(d), rtol=1e-3, atol=0)


def test_without_keep_scale_shift_and_scale_of_each_dimension_do_not_matter():
    x = cloud(30, 5)
    layer = Standardize(5, epsilon=1e-14, keep_scale=False, stats="batch")
    scale_D = torch.tensor([0.1, 1.0, 3.0, 10.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(layer(x * scale_D - 40.0), layer(x), atol=1e-9, rtol=0)


@pytest.mark.parametrize("mean", [30.0, 1e4])
def test_float32_is_close_to_float64_with_a_large_mean(mean):
    x = cloud(256, 16, mean=mean, dtype=torch.float32)
    layer = Standardize(16, keep_scale=False, stats="batch")
    assert float((layer(x).double() - layer(x.double())).abs().max()) < 1e-6 * mean


def test_a_dimension_that_does_not_vary_is_nearly_zero():
    x = cloud(64, 6, dtype=torch.float32)
    x[:, 2] = 1234.567
    y = Standardize(6, keep_scale=False, stats="batch")(x)
    assert float(y[:, 2].abs().max()) < 0.05


def test_scatter_too_small_to_square_passes_through():
    x = 1e-30 * cloud(8, 4, dtype=torch.float32)
    assert torch.equal(Standardize(4, stats="batch")(x), x)


def test_gradient_is_centred_and_scaled():
    x = cloud(16, 5).requires_grad_()
    upstream = cloud(16, 5, seed=1)
    Standardize(5, stats="batch")(x).backward(upstream)
    factor_D = Standardize(5).estimate(x.detach()).factor_D
    expected = (upstream - upstream.mean(dim=0)) * factor_D
    torch.testing.assert_close(x.grad, expected)
