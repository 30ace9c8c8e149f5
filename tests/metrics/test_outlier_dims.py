"""Outlier dimensions against the double loop over pairs and SciPy's kurtosis."""

from functools import partial

import pytest
import torch
from scipy.stats import kurtosis as scipy_kurtosis

from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.outlier_dims import outlier_dims
from tests import clouds

cloud = partial(clouds.cloud, mean=0.3, low=0.3, high=2.0)


def double_loop(x):
    """CC_i over ordered pairs of distinct rows; a zero row adds nothing."""
    n, d = x.shape
    total = torch.zeros(d, dtype=torch.float64)
    for a in range(n):
        for b in range(n):
            length = float(x[a].norm() * x[b].norm())
            if a != b and length > 0:
                total += x[a] * x[b] / length
    return total / (n * (n - 1))


def numbered(found, name):
    return [v.item() for key, v in found.items() if key.startswith(f"{name}_")]


@pytest.mark.parametrize(("n", "d"), [(2, 1), (2, 5), (6, 4), (15, 9), (5, 30)])
def test_contributions_equal_the_double_loop(n, d):
    x = cloud(n, d, seed=n)
    x[0] = x[0] * (n != 6)  # a zero row in one of them
    found = outlier_dims(x, n_top=d)
    wanted = double_loop(x)
    top, index = wanted.sort(descending=True)
    assert numbered(found, "contribution") == pytest.approx(top.tolist(), abs=1e-13)
    assert numbered(found, "index") == index.tolist()
    cosine = wanted.sum().item()
    assert cosine == pytest.approx(mean_cosine(x).item(), abs=1e-13)
    if cosine > 1e-3:
        assert numbered(found, "share") == pytest.approx((top / cosine).tolist(), rel=1e-9)
    assert all(value.dtype == torch.float64 and value.ndim == 0 for value in found.values())


def test_shares_sum_to_one_and_are_zero_without_a_cone():
    assert sum(numbered(outlier_dims(cloud(20, 6), n_top=6), "share")) == pytest.approx(1.0)
    opposed = torch.tensor([[1.0, 0.5], [-1.0, -0.5]])  # mean cosine −1
    assert numbered(outlier_dims(opposed), "share") == [0.0, 0.0]
    assert numbered(outlier_dims(torch.eye(4)), "share") == [0.0, 0.0, 0.0]


def test_a_planted_dimension_is_found():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 50, generator=generator, dtype=torch.float64)
    x[:, 17] += 40.0  # a constant offset, as of the tails of BERT
    x[:, 5] *= 9.0  # high variance about zero
    x[:, 30] = 0.01 * torch.randn(400, generator=generator, dtype=torch.float64)
    x[7, 30] = 3.0  # one spike
    found = {key: value.item() for key, value in outlier_dims(x).items()}
    assert found["index_1"] == 17.0
    assert found["share_1"] == pytest.approx(1.0, abs=0.01)
    assert found["contribution_1"] > 0.8
    assert found["n_high_variance"] == 1.0
    rms = x.square().mean().sqrt()
    assert found["largest_mean"] == pytest.approx(float(x[:, 17].mean().abs() / rms))
    assert found["kurtosis"] > 35.0  # one of fifty dimensions holds nearly all: near D
    assert found["largest_kurtosis"] > 300.0
    x[:, 17] -= 40.0
    assert abs(outlier_dims(x)["contribution_1"].item()) < 0.05


@pytest.mark.parametrize(("n", "d"), [(2, 3), (30, 5), (5, 30), (300, 4)])
def test_kurtosis_over_rows_equals_scipy(n, d):
    x = cloud(n, d, seed=2).pow(3)
    wanted = scipy_kurtosis(x.numpy(), axis=0, fisher=False, bias=True).max()
    assert outlier_dims(x)["largest_kurtosis"].item() == pytest.approx(wanted, rel=1e-11)


@pytest.mark.parametrize(("n", "d"), [(2, 3), (30, 5), (5, 30)])
def test_kurtosis_over_dimensions_and_high_variances(n, d):
    x = cloud(n, d, seed=3)
    rms = x.square().mean(dim=0).sqrt()
    wanted = rms.pow(4).mean() / rms.square().mean().square()
    assert outlier_dims(x)["kurtosis"].item() == pytest.approx(wanted.item(), rel=1e-12)
    variance = x.var(dim=0)
    for factor in (0.5, 1.0, 1.5):
        wanted = float((variance > factor * variance.mean()).sum())
        assert outlier_dims(x, variance_factor=factor)["n_high_variance"].item() == wanted


def test_the_rounding_of_means_is_no_variance():
    """Equal rows of 40 values: each mean is off by another few parts in 1e16."""
    row = torch.randn(1, 40, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    found = outlier_dims((row * 1e3).repeat(300, 1))
    assert found["n_high_variance"].item() == 0.0
    assert found["largest_kurtosis"].item() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("value", [0.1, -16_000.3])
@pytest.mark.parametrize("n", [20, 300, 1500])
def test_a_constant_dimension_has_no_kurtosis_of_its_own(value, n):
    x = cloud(n, 5, seed=7)
    plain = outlier_dims(x[:, [0, 1, 3, 4]])["largest_kurtosis"].item()
    x[:, 2] = value
    assert outlier_dims(x)["largest_kurtosis"].item() == pytest.approx(plain, rel=1e-9)


def test_gradient():
    def smooth(x):
        found = outlier_dims(x, n_top=1)
        names = ("contribution_1", "share_1", "largest_mean", "kurtosis", "largest_kurtosis")
        return tuple(found[name] for name in names)

    assert torch.autograd.gradcheck(smooth, cloud(6, 3, seed=8).requires_grad_())
