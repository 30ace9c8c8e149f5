"""Metrics of the spectrum against NumPy's singular values, scikit-learn, and closed forms."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.decomposition import PCA

from isotrain.metrics.alpha_req import alpha_req
from isotrain.metrics.condition import condition
from isotrain.metrics.effective_rank import effective_rank
from isotrain.metrics.explained_variance import explained_variance
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.participation_ratio import participation_ratio
from isotrain.metrics.rankme import rankme
from isotrain.metrics.spectral_entropy import spectral_entropy
from isotrain.metrics.stable_rank import stable_rank
from tests.clouds import cloud as even
from tests.clouds import floats

cloud = partial(even, low=0.1, high=3.0)
SHAPES = [(2, 2), (5, 3), (16, 64), (64, 16), (33, 32), (32, 33), (500, 4)]


def singular_values(x, center=True):
    """As many as the embeddings allow, falling."""
    points = x.double().numpy()
    points = points - points.mean(axis=0) * center
    return np.linalg.svd(points, compute_uv=False)[: min(len(x) - center, x.shape[1])]


def published_rankme(sigma, d, epsilon=1e-7):
    p = sigma / sigma.sum() + epsilon
    return math.exp(-(p * np.log(p)).sum())


def condition_90(sigma, d):
    return (sigma[0] / sigma[math.ceil(round(0.9 * len(sigma), 9)) - 1]) ** 2


ORACLES = {  # metric, and the same of singular values and the width
    participation_ratio: lambda s, d: (s**2).sum() ** 2 / (s**4).sum(),
    effective_rank: lambda s, d: math.exp(entropy(s)),
    spectral_entropy: lambda s, d: entropy(s**2) / math.log(d),
    stable_rank: lambda s, d: (s**2).sum() / s[0] ** 2,
    condition: condition_90,
    rankme: published_rankme,
}


@pytest.mark.parametrize("metric", ORACLES)
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("center", [True, False])
def test_equals_the_formula_of_singular_values(metric, n, d, center):
    x = cloud(n, d, mean=0.7)
    found = metric(x, center=center)
    assert (found.dtype, found.ndim) == (torch.float64, 0)
    if metric is rankme and center and n <= d:  # counts min(N, D) values, a zero among them
        sigma = np.append(singular_values(x), 0.0)
        assert found.item() == pytest.approx(published_rankme(sigma, d), rel=1e-6)
    else:
        wanted = ORACLES[metric](singular_values(x, center), d)
        assert found.item() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("n", "d"), [(3, 3), *SHAPES[1:]])
def test_explained_variance_equals_scikit_learn_and_the_origin_numpy(n, d):
    x = cloud(n, d, mean=2.0)
    ratios = np.cumsum(PCA(svd_solver="full").fit(x.numpy()).explained_variance_ratio_)
    found = explained_variance(x)
    assert list(found) == ["1", "2", "3"]
    assert all((v.dtype, v.ndim) == (torch.float64, 0) for v in found.values())
    assert list(floats(found).values()) == pytest.approx(ratios[:3], abs=1e-12)
    value = singular_values(x, center=False) ** 2
    about = explained_variance(x, [2], center=False)["2"].item()
    assert about == pytest.approx(value[:2].sum() / value.sum(), abs=1e-12)
    first = explained_variance(x, [1])["1"].item()
    assert stable_rank(x).item() == pytest.approx(1.0 / first, rel=1e-12)
    assert participation_ratio(x).item() == pytest.approx(1 + (d - 1) * isoscore(x).item())


@pytest.mark.parametrize("metric", [m for m in ORACLES if m not in (rankme, condition)])
@pytest.mark.parametrize(("k", "d"), [(1, 5), (2, 5), (5, 5), (3, 100)])
@pytest.mark.parametrize("center", [True, False])
def test_k_even_directions(metric, k, d, center):
    x = torch.nn.functional.pad(torch.cat([torch.eye(k), -torch.eye(k)]), (0, d - k)) * 3.0
    wanted = {spectral_entropy: math.log(k) / math.log(d)}.get(metric, k)
    assert metric(x + 2.0 * center, center=center).item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("metric", ORACLES)
def test_two_rows_no_scatter_and_the_origin(metric):
    two = {spectral_entropy: 0.0}.get(metric, 1.0)
    assert metric(cloud(2, 9), center=True).item() == pytest.approx(two, abs=1e-4)
    none = {condition: 1.0 / (3 * 2.0**-52)}.get(metric, 0.0)
    constant = torch.full((8, 3), 0.1, dtype=torch.float64)
    assert metric(constant, center=True).item() == pytest.approx(none)
    assert metric(torch.zeros(8, 3), center=False).item() == pytest.approx(none)
    one = {condition: none, spectral_entropy: 0.0}.get(metric, 1.0)
    assert metric(torch.ones(8, 3), center=False).item() == pytest.approx(one, abs=1e-4)


# --- laws of noise ----------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "anchor"), [(32, 30.8), (277, 262.0)])
def test_effective_rank_of_noise_of_width_768(n, anchor):
    x = torch.randn(n, 768, generator=torch.Generator().manual_seed(n))
    value = effective_rank(x).item()
    assert value == pytest.approx(anchor, rel=5e-3)
    assert value < n - 1
    squares = math.exp(entropy(singular_values(x) ** 2))
    assert abs(value - squares) > 0.005 * anchor  # weights are σ, not λ


# --- condition --------------------------------------------------------------------------------
def with_spectrum(value_D):
    """Centred embeddings whose covariance has these eigenvalues up to a factor."""
    axes, _ = torch.linalg.qr(even(len(value_D), len(value_D)))
    half = torch.as_tensor(value_D, dtype=torch.float64).sqrt()[:, None] * axes
    return torch.cat([half, -half])


@pytest.mark.parametrize("quantile", [0.05, 0.1, 0.45, 0.5, 0.55, 0.7, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("center", [True, False])
def test_condition_of_a_known_spectrum(quantile, center):
    x = with_spectrum([2.0**-i for i in range(20)])
    number = math.ceil(round(quantile * 20, 9))
    found = condition(x, quantile=quantile, center=center).item()
    assert found == pytest.approx(2.0 ** (number - 1), rel=1e-9)


@pytest.mark.parametrize("d", [3, 768])
def test_the_cap_of_the_condition(d):
    cap = 1.0 / (d * 2.0**-52)
    line = cloud(2 * d, d, seed=2)[:, :1].expand(-1, d).clone()  # one direction
    assert condition(line).item() == cap
    even_d = torch.cat([torch.eye(d), -torch.eye(d)]) + 2.0
    assert condition(even_d).item() == pytest.approx(1.0, rel=1e-9)
    above, below = (condition(with_spectrum([1.0, f * 2 * 2.0**-52])) for f in (2.0, 0.5))
    assert above.item() < below.item() == 1.0 / (2 * 2.0**-52)


# --- rankme -----------------------------------------------------------------------------------
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 1e-2])
@pytest.mark.parametrize(("n", "d"), [(64, 16), (3, 500)])
def test_rankme_adds_epsilon_to_each_of_min_n_d_values(n, d, epsilon):
    """Zeros past min(N, D) must not be counted: each would add ε·ln(1/ε)."""
    x = cloud(n, d, seed=3, mean=0.5)
    wanted = published_rankme(singular_values(x, center=False), d, epsilon)
    assert rankme(x, epsilon=epsilon).item() == pytest.approx(wanted, rel=1e-9)


# --- gradients where eigenvalues are equal or none, and options -------------------------------
@pytest.mark.parametrize("metric", [effective_rank, condition])
def test_gradient_is_finite_for_duplicates_and_equal_singular_values(metric):
    cross = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    for rows in (cloud(3, 8).repeat(2, 1), cross, torch.full((6, 3), 0.1).double()):
        value = metric(rows.requires_grad_())
        if value.requires_grad:
            value.backward()
            assert bool(rows.grad.isfinite().all())


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize(("first", "last"), [(11, 50), (1, 2), (1, 60), (20, 40), (59, 60)])
def test_exact_power_law(alpha, first, last):
    x = with_spectrum(torch.arange(1.0, 61.0, dtype=torch.float64) ** -alpha) + 2.0
    found = alpha_req(x, first=first, last=last)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    # 59 to 60: the line spans 1/60, and so multiplies rounding by 60.
    assert found.item() == pytest.approx(alpha, abs=1e-9)


def line(value, first, last):
    number = np.arange(first, last + 1)
    return -np.polyfit(np.log(number), np.log(value[first - 1 : last]), 1)[0]


@pytest.mark.parametrize(
    ("n", "d", "first", "last"),
    [(200, 80, 11, 50), (41, 80, 11, 40), (10, 80, 4, 9), (21, 300, 10, 20), (200, 25, 11, 25)],
)
def test_window_and_line_of_a_noisy_spectrum(n, d, first, last):
    """The window ends at min(50, rank) and starts at most at half of its end."""
    x = cloud(n, d, mean=1.0)
    points = x.numpy() - x.numpy().mean(axis=0)
    value = np.linalg.svd(points, compute_uv=False) ** 2
    assert alpha_req(x).item() == pytest.approx(line(value, first, last), rel=1e-9)
