"""Uniformity against the loop over pairs, the sphere, and its own error."""

import math

import pytest
import torch
from hydra.utils import instantiate
from scipy.special import hyp0f1

from isotrain.metrics.uniformity import uniformity, uniformity_estimate
from tests.metrics.clouds import cloud


def loop(x, t=2.0):
    """The definition, pair by pair; a zero row stays at the origin."""
    unit = [row / row.norm() if bool(row.any()) else row for row in x.double()]
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    total = math.fsum(math.exp(-t * float((unit[i] - unit[j]).square().sum())) for i, j in pairs)
    return math.log(total / len(pairs))


@pytest.mark.parametrize(
    ("n", "d", "mean"), [(2, 1, 0.0), (5, 3, 0.0), (30, 8, 1.0), (9, 40, -3.0), (4, 2, 9.0)]
)
@pytest.mark.parametrize("t", [0.3, 2.0])
def test_equals_the_loop(n, d, mean, t):
    x = cloud(n, d, seed=n, mean=mean)
    assert uniformity(x, t).item() == pytest.approx(loop(x, t), rel=1e-11, abs=1e-14)


def test_the_file_of_the_metric_gives_its_error_too(composed):
    x = cloud(50, 4)
    node = composed("metric=[uniformity]").metric.uniformity
    found = instantiate(node.function)(x, max_rows=40, n_pairs=300)
    assert set(found) == {"value", "standard_error", "n_pairs"}
    assert found["standard_error"].item() > 0.0


@pytest.mark.parametrize(("n", "d"), [(3000, 2), (3000, 16), (2000, 768)])
def test_the_uniform_sphere(n, d):
    # E exp(2t·cos) over the sphere is ₀F₁(D/2; t²).
    expected = math.log(hyp0f1(d / 2, 4.0)) - 4.0
    assert uniformity(cloud(n, d, seed=d)).item() == pytest.approx(expected, abs=0.02)
    if d == 768:
        assert expected == pytest.approx(-3.99, abs=0.005)


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("t", [1.0, 2.0])
def test_a_simplex_is_the_lower_end(n, t):
    simplex = torch.eye(n, dtype=torch.float64) - 1.0 / n
    assert uniformity(simplex, t).item() == pytest.approx(-2.0 * t * n / (n - 1), rel=1e-12)


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_one_direction_is_the_upper_end(n):
    for seed in range(10):  # rounding would lift some above 0
        length_N1 = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)).double() + 0.1
        value = uniformity(cloud(1, 50, seed) * length_N1).item()
        assert -1e-12 < value <= 0.0
    assert uniformity(torch.zeros(n, 3)).item() == 0.0


def test_a_zero_row_is_at_distance_one_from_every_direction():
    x = cloud(12, 4, seed=1)
    x[[3, 8]] = 0.0
    assert uniformity(x).item() == pytest.approx(loop(x), rel=1e-12)
    assert uniformity(torch.tensor([[0.0, 0.0], [0.0, 9.0]])).item() == pytest.approx(-2.0)


def test_a_common_mean_raises_it():
    assert uniformity(cloud(200, 16, mean=1.0)) > uniformity(cloud(200, 16)) + 1.0


def test_all_pairs_up_to_max_rows_and_a_sample_above():
    x = cloud(150, 5, seed=3, mean=0.5)
    exact = uniformity_estimate(x, max_rows=150)
    assert exact["standard_error"].item() == 0.0
    assert exact["n_pairs"].item() == 150 * 149 / 2
    assert exact["value"].item() == uniformity(x).item()
    sampled = uniformity_estimate(x, max_rows=149, n_pairs=4000)
    assert sampled["n_pairs"].item() == 4000
    error = sampled["standard_error"].item()
    assert 0.0 < error < 0.05
    assert 0.0 < abs(sampled["value"].item() - exact["value"].item()) < 4.0 * error
    assert uniformity(x, max_rows=149, n_pairs=4000).item() == sampled["value"].item()


def test_the_sample_has_its_own_seed_and_leaves_the_global_one_alone():
    x = cloud(60, 4, seed=4)
    state = torch.get_rng_state()
    first, again, other = (
        uniformity(x, max_rows=10, n_pairs=500, seed=seed).item() for seed in (0, 0, 1)
    )
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), state)


def test_gradient_when_asked():
    x = cloud(6, 3, seed=7)
    assert not uniformity(x).requires_grad
    assert torch.autograd.gradcheck(uniformity, x.clone().requires_grad_())
    sampled = lambda x: uniformity(x, max_rows=3, n_pairs=20)  # noqa: E731
    assert torch.autograd.gradcheck(sampled, x.clone().requires_grad_())
    x[2] = 0.0
    x.requires_grad_()
    uniformity(x).backward()
    assert bool(torch.isfinite(x.grad).all())


def test_errors():
    x = cloud(10, 3)
    for t in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="t must be positive and finite"):
            uniformity(x, t)
    with pytest.raises(ValueError, match="n_pairs must be at least 2"):
        uniformity(x, n_pairs=1)
