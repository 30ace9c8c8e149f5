"""Mean cosine, alignment, cosine drift and uniformity against loops over pairs and closed forms."""

import math

import pytest
import torch
from scipy.special import hyp0f1

from isotrain.metrics.alignment import alignment
from isotrain.metrics.cosine_drift import cosine_drift
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.uniformity import uniformity
from tests.clouds import cloud
from tests.slow_cosines import mean_of_pairs


@pytest.mark.parametrize(
    ("n", "d", "mean"), [(2, 1, 0.0), (5, 3, 0.0), (20, 8, 1.0), (9, 40, -3.0), (3, 2, 9.0)]
)
def test_mean_cosine_equals_the_loop_over_pairs(n, d, mean):
    x = cloud(n, d, seed=n, mean=mean)
    x[0] *= n != 5  # a zero vector in one of them
    assert mean_cosine(x).item() == pytest.approx(mean_of_pairs(x), abs=1e-12)


def test_ends_of_the_range():
    assert mean_cosine(torch.ones(10, 3)).item() == pytest.approx(1.0, abs=1e-14)
    assert mean_cosine(torch.eye(6)).item() == 0.0
    simplex = torch.eye(5, dtype=torch.float64) - 0.2
    assert mean_cosine(simplex).item() == pytest.approx(-0.25, abs=1e-14)


def by_hand(x, y, alpha):
    total = 0.0
    for a, b in zip(x, y, strict=True):
        total += float((a / a.norm() - b / b.norm()).norm()) ** alpha
    return total / len(x)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 6), (20, 8), (9, 40)])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.5])
def test_equals_the_loop_over_pairs(n, d, alpha):
    x, y = cloud(n, d, seed=1, mean=0.5), cloud(n, d, seed=2, mean=0.5)
    found = alignment(x, y, alpha=alpha).item()
    assert found == pytest.approx(by_hand(x, y, alpha), abs=1e-12)
    # ‖u − v‖² = 2 − 2·cos
    assert cosine_drift(x, y).item() == pytest.approx(by_hand(x, y, 2.0) / 2.0, abs=1e-12)


@pytest.mark.parametrize("angle", [math.pi, 1.0, 0.4, 1e-3, 1e-5, 1e-6, 1e-9])
def test_closed_form_of_an_angle(angle):
    x = torch.tensor([[3.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    chord = 2.0 * math.sin(angle / 2.0)
    for alpha in (1.0, 2.0):
        assert alignment(x, y, alpha=alpha).item() == pytest.approx(chord**alpha, rel=1e-9)
    assert cosine_drift(x, y).item() == pytest.approx(chord**2 / 2.0, rel=1e-9)


def test_zero_rows_are_at_distance_one():
    zero, one = torch.zeros(1, 3), torch.tensor([[0.0, 2.0, 0.0]])
    for alpha in (0.5, 2.0, 3.0):
        assert alignment(zero, one, alpha=alpha).item() == 1.0
        assert alignment(zero, zero, alpha=alpha).item() == 0.0


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_a_pair_at_distance_zero_has_gradient_zero(alpha):
    same = torch.cat([cloud(3, 3, seed=11), torch.zeros(1, 3)]).requires_grad_()
    alignment(same, same.detach().clone(), alpha=alpha).backward()
    assert same.grad.tolist() == [[0.0] * 3] * 4


def test_zero_rows():
    zero, one = torch.zeros(1, 3), torch.tensor([[0.0, 2.0, 0.0]])
    assert cosine_drift(zero, one).item() == 1.0
    assert cosine_drift(one, zero).item() == 1.0
    assert cosine_drift(zero, zero).item() == 0.0
    mixed = cosine_drift(torch.cat([zero, one, -one]), torch.cat([one, one, one]))
    assert mixed.item() == pytest.approx(1.0)  # (1 + 0 + 2)/3


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
