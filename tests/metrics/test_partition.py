"""Partition isotropy I(W) against the literal published computation and SciPy's logsumexp."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from isotrain.metrics.partition import partition

light = settings(max_examples=25, deadline=None, derandomize=True)


def cloud(n, d, seed=0, mean=0.0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = scale * (1.0 + torch.arange(d, dtype=torch.float64)) / d
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def literal(x, directions):
    """Rajaee and Pilehvar's loop: F per direction, then min over max, not in log space."""
    values = []
    for j in range(directions.shape[1]):
        total = 0.0
        for row in x:
            pairs = zip(row.tolist(), directions[:, j].tolist(), strict=True)
            total += math.exp(sum(a * b for a, b in pairs))
        values.append(total)
    return math.log(min(values) / max(values))


def in_log_space(x):
    """Both signs of every right singular vector, null directions among them."""
    points = x.double().numpy()
    projection = points @ np.linalg.svd(points, full_matrices=True)[2].T
    log_f = np.concatenate([logsumexp(projection, axis=0), logsumexp(-projection, axis=0)])
    return min(float(log_f.min() - log_f.max()), 0.0)


@pytest.mark.parametrize(("n", "d"), [(5, 3), (40, 6), (4, 7)])
def test_as_is_equals_the_literal_loop(n, d):
    x = cloud(n, d, seed=n, mean=0.2)
    directions = torch.from_numpy(np.linalg.eigh((x.T @ x).numpy())[1].copy())
    found = partition(x, signs="as_is", directions=directions)
    assert found.item() == pytest.approx(literal(x, directions), abs=1e-9)


def test_as_is_depends_on_the_sign_and_both_does_not():
    x = cloud(30, 5, seed=1, mean=1.0)
    directions = torch.linalg.eigh(x.T @ x).eigenvectors
    flipped = directions * torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    one = partition(x, signs="as_is", directions=directions).item()
    two = partition(x, signs="as_is", directions=flipped).item()
    assert abs(one - two) > 1e-3
    both = partition(x, directions=directions).item()
    assert both == pytest.approx(partition(x, directions=flipped).item(), abs=1e-12)
    assert both == pytest.approx(literal(x, torch.cat([directions, -directions], dim=1)), abs=1e-9)
    assert both <= min(one, two) + 1e-12


@pytest.mark.parametrize(
    ("n", "d"), [(50, 4), (4, 50), (10, 10), (11, 10), (10, 11), (1, 5), (2, 1)]
)
@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_equals_scipy_on_the_singular_vectors(n, d, mean):
    x = cloud(n, d, seed=n + d, mean=mean)
    assert partition(x).item() == pytest.approx(in_log_space(x), abs=1e-9)


def test_fewer_rows_than_dimensions_counts_the_null_direction():
    x = torch.zeros(3, 8, dtype=torch.float64)
    x[:, 0] = torch.tensor([2.0, 2.0, 2.0])  # one direction; F = 3e², 3e⁻², and 3 off it
    assert partition(x).item() == pytest.approx(-4.0, abs=1e-12)
    spread = torch.zeros(2, 8, dtype=torch.float64)
    spread[0, 0], spread[1, 0] = 3.0, -3.0  # F = 2cosh 3 both ways, and N = 2 in the null space
    assert partition(spread).item() == pytest.approx(-math.log(math.cosh(3.0)), abs=1e-12)


def test_a_null_direction_is_not_added_to_given_directions():
    x = torch.zeros(2, 8, dtype=torch.float64)
    x[0, 0], x[1, 0] = 3.0, -3.0
    given_D1 = torch.eye(8, dtype=torch.float64)[:, :1]
    assert partition(x, directions=given_D1).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("norm", "n", "d"), [(1e3, 40, 8), (1e3, 8, 40), (16_000.0, 30, 5), (1e8, 9, 4)]
)
def test_large_norms_do_not_overflow(norm, n, d):
    x = cloud(n, d, seed=2) + norm / math.sqrt(d)
    value = partition(x)
    assert value.item() == pytest.approx(in_log_space(x), rel=1e-9)
    assert partition(x, log=False).item() == 0.0


def test_single_direction_closed_form():
    mean = 5.0
    x = torch.full((17, 1), mean, dtype=torch.float64)
    assert partition(x).item() == pytest.approx(-2.0 * mean, abs=1e-12)


def test_log_false_is_the_exponential():
    x = cloud(60, 4, seed=3, scale=0.5)
    value = partition(x, log=False).item()
    assert 0.0 < value <= 1.0
    assert value == pytest.approx(math.exp(partition(x).item()), rel=1e-12)


@given(st.integers(1, 25), st.integers(1, 10), st.integers(0, 10_000))
@light
def test_rotation_row_order_and_range(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x = cloud(n, d, seed, mean=0.1)
    rotation, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    value = partition(x).item()
    assert value <= 0.0
    assert partition(x @ rotation).item() == pytest.approx(value, abs=1e-8)
    order = torch.randperm(n, generator=generator)
    assert partition(x[order]).item() == pytest.approx(value, abs=1e-8)


def test_scale_moves_it():
    x = cloud(100, 5, seed=4)
    assert partition(2.0 * x).item() < partition(x).item() - 0.1


def test_centred_lower_bound():
    x = cloud(80, 6, seed=5)
    x = x - x.mean(dim=0)
    directions = torch.linalg.eigh(x.T @ x).eigenvectors
    projection = x @ torch.cat([directions, -directions], dim=1)
    bound = -(torch.logsumexp(projection, dim=0).max() - math.log(80)).item()
    assert bound - 1e-12 <= partition(x).item() <= 0.0


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (1, 1)])
def test_zero_rows_are_isotropic(shape):
    assert partition(torch.zeros(shape)).item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_promoted(dtype):
    x = (cloud(20, 5, seed=6) * 30.0).to(dtype)
    found = partition(x)
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(in_log_space(x), abs=1e-7)


def test_errors_name_the_fix():
    x = torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"pass directions.*signs='both'"):
        partition(x, signs="as_is")
    with pytest.raises(ValueError, match="both or as_is"):
        partition(x, signs="one")
    with pytest.raises(ValueError, match=r"\[3, J\]"):
        partition(x, directions=torch.eye(4))
    with pytest.raises(ValueError, match=r"\[3, J\]"):
        partition(x, directions=torch.zeros(3, 0))
    with pytest.raises(ValueError, match="divide each by its norm"):
        partition(x, directions=2.0 * torch.eye(3))
    with pytest.raises(ValueError, match=r"\[N, D\]"):
        partition(torch.ones(3))
    with pytest.raises(ValueError, match="at least 1 rows"):
        partition(torch.ones(0, 3))
    x[2, 0] = float("nan")
    with pytest.raises(ValueError, match="row 2"):
        partition(x)


def test_directions_with_a_nan_are_refused():
    directions = torch.eye(3)
    directions[0, 0] = float("nan")
    with pytest.raises(ValueError, match="directions"):
        partition(torch.ones(4, 3), directions=directions)
