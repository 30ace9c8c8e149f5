"""A running covariance against that of all rows together."""

import pytest
import torch

from isotrain.geometry.spectra import RunningCovariance
from tests.clouds import normal


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
