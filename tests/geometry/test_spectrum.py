"""Covariance traces against NumPy's covariance."""

import numpy as np
import pytest
import torch

from isotrain.geometry.spectrum import covariance_traces


@pytest.mark.parametrize(("n", "d"), [(2, 1), (2, 9), (9, 10), (10, 10), (11, 10), (300, 7)])
def test_equals_the_covariance_matrix(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64) + 5.0
    covariance = np.cov(x.numpy(), rowvar=False).reshape(d, d)
    traces = covariance_traces(x)
    assert traces.trace.item() == pytest.approx(np.trace(covariance), rel=1e-12)
    assert traces.frobenius_squared.item() == pytest.approx((covariance**2).sum(), rel=1e-12)


@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_is_differentiable_on_both_sides(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda rows: tuple(covariance_traces(rows)), x.requires_grad_())
