"""IsoScore without bias: against the loop over four distinct points, and against known truths."""

import itertools
import math
from functools import partial

import pytest
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_corrected import isoscore_corrected
from tests import clouds

cloud = partial(clouds.cloud, low=0.5, high=1.5)


def literal_parts(x):
    """tr(Σ²) and (tr Σ)², each the mean of its kernel over all ordered distinct i, j, k, l."""
    frobenius, trace_squared, count = 0.0, 0.0, 0
    points = x.numpy()
    for i, j, k, m in itertools.permutations(range(len(points)), 4):
        a, b = points[i] - points[j], points[k] - points[m]
        frobenius += float(a @ b) ** 2 / 4
        trace_squared += float(a @ a) * float(b @ b) / 4
        count += 1
    return frobenius / count, trace_squared / count


def literal(x):
    frobenius, trace_squared = literal_parts(x)
    return (trace_squared / frobenius - 1.0) / (x.shape[1] - 1)


@pytest.mark.parametrize("n", [5, 6, 7])
@pytest.mark.parametrize("d", [2, 3, 9])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_loop_over_four_distinct_rows(n, d, seed):
    x = cloud(n, d, seed, mean=4.0)
    assert isoscore_corrected(x).item() == pytest.approx(literal(x), rel=1e-10)


def gaussian(n, d, generator):
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def mean_and_error(draw, n, d, n_draws):
    found = torch.stack(
        [
            isoscore_corrected(draw(n, d, torch.Generator().manual_seed(1000 * n + seed)))
            for seed in range(n_draws)
        ]
    )
    return found.mean().item(), (found.std() / math.sqrt(n_draws)).item()


@pytest.mark.parametrize(("n", "n_draws"), [(16, 100), (64, 60), (256, 20), (1024, 8), (4096, 4)])
def test_unbiased_for_gaussian_rows_of_even_variance(n, n_draws):
    """The truth is 1 at every N, where IsoScore is N/(N + D)."""
    d = 64
    mean, error = mean_and_error(gaussian, n, d, n_draws)
    # The ratio of two unbiased parts keeps a bias of order 1/N; at N = 16 it is seen.
    assert abs(mean - 1.0) <= 4.0 * error + 0.3 / n
    assert error < 0.02
    plain = isoscore(gaussian(n, d, torch.Generator().manual_seed(n))).item()
    assert plain == pytest.approx((n - 1) / (n - 1 + d), rel=0.15)


@pytest.mark.parametrize(("n", "n_draws"), [(32, 60), (512, 8), (4096, 4)])
def test_finds_the_truth_of_an_uneven_spectrum(n, n_draws):
    value = torch.arange(1.0, 41.0, dtype=torch.float64) ** -0.8
    truth = ((value.sum() ** 2 / value.square().sum() - 1) / 39).item()

    def draw(n, d, generator):
        return gaussian(n, d, generator) * value.sqrt() + 7.0

    mean, error = mean_and_error(draw, n, 40, n_draws)
    assert abs(mean - truth) <= 4.0 * error + truth * 4.0 / n
    assert error < 0.1 * truth


@pytest.mark.parametrize("value", [0.3, -16_000.3])
@pytest.mark.parametrize("n", [12, 50])
def test_one_differing_row_leaves_nothing_to_estimate(value, n):
    """Four distinct rows never hold two differing pairs: 0/0, which must not be rounding."""
    x = torch.full((n, 5), value, dtype=torch.float64)
    for seed in range(3):
        x[1] = cloud(1, 5, seed)[0]
        with pytest.raises(ValueError, match=r"not positive; measure more rows"):
            isoscore_corrected(x)
