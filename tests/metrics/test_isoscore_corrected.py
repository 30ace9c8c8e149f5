"""IsoScore without bias: against the loop over four distinct rows, and against known truths."""

import itertools
import math

import numpy as np
import pytest
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_corrected import isoscore_corrected


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.5, 1.5, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


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


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_loop_at_four_rows_the_fewest(seed):
    x = cloud(4, 3, seed)
    assert isoscore_corrected(x).item() == pytest.approx(literal(x), rel=1e-9)


def test_equals_the_loop_for_heavy_tails():
    x = cloud(7, 3, seed=3)
    x[2] *= 40.0
    x[5] *= -15.0
    assert isoscore_corrected(x).item() == pytest.approx(literal(x), rel=1e-9)


def gaussian(n, d, generator):
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


def heavy(n, d, generator):
    """Student t with 5 degrees of freedom, every row times a random scale: covariance c·I."""
    squares = gaussian(n, 5, generator).square().sum(dim=1, keepdim=True)
    scale = torch.exp(0.5 * gaussian(n, 1, generator))
    return gaussian(n, d, generator) / (squares / 5).sqrt() * scale


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


def test_near_the_truth_for_heavy_tails_where_isoscore_is_far_off():
    d, n, n_draws = 64, 512, 30
    mean, error = mean_and_error(heavy, n, d, n_draws)
    assert abs(mean - 1.0) <= 4.0 * error + 0.02
    generators = [torch.Generator().manual_seed(seed) for seed in range(n_draws)]
    plain = torch.stack([isoscore(heavy(n, d, g)) for g in generators]).mean().item()
    assert plain < 0.75  # even the Gaussian law, 0.89, is far above it


def test_the_two_parts_are_unbiased():
    """The average over all subsets of 6 of 9 rows is the U-statistic of the 9 rows."""
    x = cloud(9, 3, seed=8)
    parts = [literal_parts(x[list(chosen)]) for chosen in itertools.combinations(range(9), 6)]
    frobenius, trace_squared = np.mean(parts, axis=0)
    assert isoscore_corrected(x).item() == pytest.approx((trace_squared / frobenius - 1) / 2)


def test_may_leave_the_range():
    found = torch.stack(
        [isoscore_corrected(gaussian(16, 64, torch.Generator().manual_seed(s))) for s in range(20)]
    )
    assert bool((found > 1.0).any())
    line = torch.randn(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert isoscore_corrected(line.expand(20, 5).clone()).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("value", [0.3, -16_000.3])
@pytest.mark.parametrize("n", [12, 50])
def test_one_differing_row_leaves_nothing_to_estimate(value, n):
    """Four distinct rows never hold two differing pairs: 0/0, which must not be rounding."""
    x = torch.full((n, 5), value, dtype=torch.float64)
    for seed in range(3):
        x[1] = cloud(1, 5, seed)[0]
        with pytest.raises(ValueError, match=r"not positive; measure more rows"):
            isoscore_corrected(x)


def test_one_dimension_and_no_scatter():
    assert isoscore_corrected(cloud(9, 1)).item() == 1.0
    assert isoscore_corrected(torch.full((9, 3), 0.1, dtype=torch.float64)).item() == 0.0
