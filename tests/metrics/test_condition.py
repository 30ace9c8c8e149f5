"""Condition of known spectra, its quantile and its cap."""

import math

import numpy as np
import pytest
import torch

from isotrain.metrics.condition import condition


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def with_spectrum(value_D, seed=0):
    """Centred rows whose covariance has these eigenvalues up to a factor, in random axes."""
    d = len(value_D)
    generator = torch.Generator().manual_seed(seed)
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    half = torch.as_tensor(value_D, dtype=torch.float64).sqrt()[:, None] * axes
    return torch.cat([half, -half])


@pytest.mark.parametrize("quantile", [0.05, 0.1, 0.45, 0.5, 0.55, 0.7, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("center", [True, False])
def test_known_spectrum(quantile, center):
    value = np.array([2.0**-i for i in range(20)])
    number = math.ceil(round(quantile * 20, 9))
    found = condition(with_spectrum(value), quantile=quantile, center=center)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(2.0 ** (number - 1), rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(5, 40), (11, 10), (40, 10), (10, 10)])
@pytest.mark.parametrize("center", [True, False])
def test_equals_numpy_at_the_rank_the_rows_allow(n, d, center):
    x = cloud(n, d, mean=0.5)
    points = x.numpy() - x.numpy().mean(axis=0) * center
    value = np.linalg.svd(points, compute_uv=False) ** 2
    allowed = min(n - center, d)
    for quantile in (0.5, 0.9, 1.0):
        wanted = value[0] / value[math.ceil(round(quantile * allowed, 9)) - 1]
        found = condition(x, quantile=quantile, center=center).item()
        assert found == pytest.approx(wanted, rel=1e-9)


def test_is_the_square_of_the_usual_condition_number():
    x = cloud(60, 8, seed=1)
    assert condition(x, quantile=1.0, center=False).item() == pytest.approx(
        np.linalg.cond(x.numpy()) ** 2, rel=1e-10
    )


def test_isotropic_end():
    even = torch.cat([torch.eye(6), -torch.eye(6)]) + 2.0
    assert condition(even).item() == pytest.approx(1.0, rel=1e-12)
    assert condition(cloud(2, 9)).item() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("d", [3, 768])
def test_cap(d):
    cap = 1.0 / (d * 2.0**-52)
    for x in (torch.full((9, d), 0.1, dtype=torch.float64), torch.zeros(9, d)):
        assert condition(x).item() == cap
    flat = cloud(2 * d, d, seed=2)[:, :1].expand(-1, d).clone()  # one direction
    assert condition(flat).item() == cap
    if d == 768:
        assert cap == pytest.approx(5.9e12, rel=0.01)


def test_the_cap_is_the_largest_value():
    eps = 2.0**-52
    just_above, just_below = (condition(with_spectrum([1.0, f * 2 * eps])) for f in (2.0, 0.5))
    assert just_above.item() < just_below.item() == 1.0 / (2 * eps)


def test_duplicate_rows_fall_to_the_cap_where_the_rank_is_short():
    x = cloud(3, 8, seed=3).repeat(2, 1)  # 6 rows allow 5 directions and have 2
    assert condition(x).item() == 1.0 / (8 * 2.0**-52)
    assert condition(x, quantile=0.4).item() == pytest.approx(condition(x[:3]).item(), rel=1e-9)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d, center):
    x = cloud(n, d, seed=4, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: condition(rows, center=center), x)


def test_gradient_is_finite_at_the_cap():
    x = torch.full((6, 3), 0.1, dtype=torch.float64).requires_grad_()
    value = condition(x)
    if value.requires_grad:
        value.backward()
        assert bool(x.grad.isfinite().all())
    y = cloud(3, 8).repeat(2, 1).requires_grad_()
    condition(y).backward()
    assert bool(y.grad.isfinite().all())


@pytest.mark.parametrize("quantile", [0.0, -0.5, 1.01, float("nan")])
def test_quantile_outside_the_range(quantile):
    with pytest.raises(ValueError, match=r"quantile must be in \(0, 1\]"):
        condition(cloud(5, 3), quantile=quantile)
