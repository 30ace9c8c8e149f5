"""IsoBn against NumPy's correlations, closed forms, and its contract. N rows, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.iso_bn import IsoBn

light = settings(max_examples=25)


def estimate(x, *args, **options):
    """The layer's statistics of a cloud."""
    return IsoBn(x.shape[1], *args, **options).estimate(x)


def cloud(n, d, seed=0, mean=2.0, dtype=torch.float64):
    """Correlated dimensions of unequal variance."""
    generator = torch.Generator().manual_seed(seed)
    mixing_DD = torch.randn(d, d, generator=generator, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) @ mixing_DD
    return (x * torch.linspace(0.2, 3.0, d, dtype=torch.float64) + mean).to(dtype)


def reference(x, beta, epsilon):
    """Zhou, Lin and Ren 2021, dimension by dimension."""
    points = x.double().numpy()
    sd = points.std(axis=0)
    rho = np.atleast_2d(np.corrcoef(points, rowvar=False))
    scale = np.empty(len(sd))
    for i in range(len(sd)):
        gamma = sum(rho[i, j] ** 2 for j in range(len(sd))) / len(sd)
        scale[i] = (gamma * sd[i] + epsilon * sd.mean()) ** -beta
    return torch.from_numpy(scale * np.sqrt((sd**2).sum() / (sd**2 * scale**2).sum()))


def total_variance(x):
    return x.var(dim=0, correction=0).sum()


@pytest.mark.parametrize(("n", "d"), [(2, 3), (50, 8), (16, 40)])
@pytest.mark.parametrize(("beta", "epsilon"), [(0.5, 1e-3), (1.0, 0.1), (0.25, 1e-6)])
def test_equals_the_published_formula(n, d, beta, epsilon):
    x = cloud(n, d)
    y = IsoBn(d, beta=beta, epsilon=epsilon, stats="batch")(x)
    torch.testing.assert_close(y, x * reference(x, beta, epsilon))


def test_uncorrelated_dimensions_of_variance_one_stay_as_they_are():
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).double()
    torch.testing.assert_close(IsoBn(2, stats="batch")(x), x)


def test_with_beta_one_dimensions_that_repeat_each_other_count_less():
    # Two copies of one dimension beside another: γ = 2/3, 2/3, 1/3, so scales 1 : 1 : 2.
    a = torch.tensor([1.0, 1.0, -1.0, -1.0]).double()
    b = torch.tensor([1.0, -1.0, 1.0, -1.0]).double()
    scale_D = estimate(torch.stack([a, a, b], dim=1), beta=1.0, epsilon=1e-12).scale_D
    torch.testing.assert_close(scale_D / scale_D[0], torch.tensor([1.0, 1.0, 2.0]).double())


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 10_000), st.floats(1e-3, 1e3))
@light
def test_total_variance_is_kept_and_uniform_scale_goes_through(n, d, seed, scale):
    x = cloud(n, d, seed)
    layer = IsoBn(d, stats="batch")
    y = layer(x)
    torch.testing.assert_close(total_variance(y), total_variance(x))
    torch.testing.assert_close(layer(scale * x), scale * y)
    shifted = estimate(x + 5.0).scale_D
    torch.testing.assert_close(shifted, estimate(x).scale_D)


def test_a_dimension_that_does_not_vary_is_finite_and_changes_no_other():
    x = cloud(64, 6, dtype=torch.float32)
    x[:, 2] = 0.0
    scale_D = estimate(x).scale_D
    assert bool(torch.isfinite(scale_D).all())
    assert scale_D.argmax() == 2
    x[:, 2] = 1234.567  # varies by rounding at most
    torch.testing.assert_close(estimate(x).scale_D, scale_D, rtol=2e-2, atol=0)


def test_gradient_is_scaled_and_nothing_else():
    x = cloud(16, 5).requires_grad_()
    upstream = cloud(16, 5, seed=1)
    IsoBn(5, stats="batch")(x).backward(upstream)
    torch.testing.assert_close(x.grad, upstream * estimate(x).scale_D)
