"""RankMe against the published formula written out."""

import math

import pytest
import torch

from isotrain.metrics.effective_rank import effective_rank
from isotrain.metrics.rankme import rankme

SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.1, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def published(z, epsilon=1e-7):
    singular = torch.linalg.svdvals(z)
    p = singular / torch.linalg.vector_norm(singular, ord=1) + epsilon
    return torch.exp(-torch.sum(p * torch.log(p)))


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("epsilon", [1e-7, 1e-5, 1e-2])
def test_equals_the_published_formula(n, d, epsilon):
    x = cloud(n, d)
    found = rankme(x, epsilon=epsilon)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    assert found.item() == pytest.approx(published(x, epsilon).item(), rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(16, 64), (64, 16)])
def test_centred_on_request(n, d):
    x = cloud(n, d, seed=1, mean=5.0)
    wanted = published(x - x.mean(dim=0)).item()
    assert rankme(x, center=True).item() == pytest.approx(wanted, rel=1e-6)
    assert rankme(x).item() < 0.9 * wanted  # as published the mean cone lowers it


def test_near_the_effective_rank_and_above_it_by_epsilon():
    x = cloud(64, 16, seed=2)
    bare = effective_rank(x, center=False).item()
    assert rankme(x, epsilon=1e-12).item() == pytest.approx(bare, rel=1e-9)
    assert 0 < rankme(x).item() - bare < bare * 2 * 16 * 1e-7 * math.log(1e7)


def test_rows_below_the_width_have_n_singular_values():
    """Zeros past min(N, D) must not be counted: each would add ε·ln(1/ε)."""
    x = cloud(3, 500, seed=3)
    assert rankme(x, epsilon=1e-3).item() == pytest.approx(published(x, 1e-3).item(), rel=1e-9)


def test_ends_of_the_range():
    assert rankme(torch.eye(8)).item() == pytest.approx(8.0, rel=1e-4)
    assert rankme(torch.ones(8, 4)).item() == pytest.approx(1.0, rel=1e-4)
    assert rankme(torch.zeros(8, 4)).item() == 0.0
    assert rankme(torch.full((8, 4), 0.1, dtype=torch.float64), center=True).item() == 0.0


@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d):
    assert torch.autograd.gradcheck(rankme, cloud(n, d, seed=4).requires_grad_())


@pytest.mark.parametrize("epsilon", [0.0, -1e-7, float("nan")])
def test_epsilon_must_be_positive(epsilon):
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        rankme(cloud(5, 3), epsilon=epsilon)
