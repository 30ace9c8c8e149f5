"""Metrics of the spectrum against NumPy's singular values, scikit-learn, and closed forms."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.decomposition import PCA

from isotrain.metrics.condition import condition
from isotrain.metrics.effective_rank import effective_rank
from isotrain.metrics.explained_variance import explained_variance
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.participation_ratio import participation_ratio
from isotrain.metrics.rankme import rankme
from isotrain.metrics.spectral_entropy import spectral_entropy
from isotrain.metrics.stable_rank import stable_rank
from tests.metrics.clouds import cloud as even
from tests.metrics.clouds import floats

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


def test_explained_variance_of_even_directions_and_of_no_scatter():
    cross = torch.cat([torch.eye(4), -torch.eye(4)]) - 3.0
    assert list(floats(explained_variance(cross)).values()) == pytest.approx([0.25, 0.5, 0.75])
    constant = torch.full((8, 3), -16_000.3, dtype=torch.float64)
    assert list(floats(explained_variance(constant)).values()) == [0.0] * 3
    about = floats(explained_variance(constant, center=False))
    assert list(about.values()) == pytest.approx([1.0] * 3)


def test_explained_variance_rises_to_one_and_keys_are_as_asked():
    x = cloud(40, 6, seed=2)
    found = explained_variance(x, (5, 1, 6, 100))
    assert list(found) == ["5", "1", "6", "100"]
    steps = np.diff([0.0, *floats(explained_variance(x, range(1, 7))).values()])
    assert bool((steps > 0).all())
    assert bool((np.diff(steps) <= 1e-15).all())  # eigenvalues fall
    assert steps.sum() == pytest.approx(1.0, abs=1e-14)
    assert found["100"].item() == pytest.approx(1.0, abs=1e-14)
    few = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    assert 0.25 <= explained_variance(few)["1"].item() < 0.4


# --- laws of noise ----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "anchor"), [(32, 30.8), (277, 262.0)])
def test_effective_rank_of_noise_of_width_768(n, anchor):
    x = torch.randn(n, 768, generator=torch.Generator().manual_seed(n))
    value = effective_rank(x).item()
    assert value == pytest.approx(anchor, rel=5e-3)
    assert value < n - 1
    squares = math.exp(entropy(singular_values(x) ** 2))
    assert abs(value - squares) > 0.005 * anchor  # weights are σ, not λ


@pytest.mark.parametrize(("n", "d"), [(400, 200), (200, 400), (3000, 100)])
def test_stable_rank_of_noise_has_the_edge_of_marchenko_and_pastur(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    law = d / (1.0 + (d / (n - 1)) ** 0.5) ** 2  # trace d over the edge of the spectrum
    assert stable_rank(x).item() == pytest.approx(law, rel=0.06)


@pytest.mark.parametrize(("n", "d", "n_draws"), [(16, 64, 40), (64, 64, 20), (1000, 64, 6)])
def test_participation_ratio_of_a_gaussian_cloud(n, d, n_draws):
    """The two traces of a Wishart matrix have E tr² and E‖·‖² that give n·d/(n + d) nearly."""
    found = torch.stack([participation_ratio(even(n, d, seed)) for seed in range(n_draws)])
    freedom = n - 1
    # E (tr W)² / E tr(W²) for W of `freedom` degrees: exact up to the ratio's own 1/(n·d).
    law = (freedom * d + 2) / (freedom + d + 1)
    error = (found.std() / n_draws**0.5).item()
    assert abs(found.mean().item() - law) <= 4.0 * error + 2e-3 * law


def test_spectral_entropy_of_few_rows_cannot_pass_their_number():
    x = torch.randn(8, 700, generator=torch.Generator().manual_seed(0))
    assert 0.95 < spectral_entropy(x).item() * math.log(700) / math.log(7) <= 1.0
    assert spectral_entropy(cloud(5, 1)).item() == 1.0


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


def test_condition_of_duplicates_falls_to_the_cap_where_the_rank_is_short():
    x = cloud(3, 8, seed=3).repeat(2, 1)  # 6 rows allow 5 directions and have 2
    assert condition(x).item() == 1.0 / (8 * 2.0**-52)
    assert condition(x, quantile=0.4).item() == pytest.approx(condition(x[:3]).item(), rel=1e-9)


# --- rankme -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 1e-2])
@pytest.mark.parametrize(("n", "d"), [(64, 16), (3, 500)])
def test_rankme_adds_epsilon_to_each_of_min_n_d_values(n, d, epsilon):
    """Zeros past min(N, D) must not be counted: each would add ε·ln(1/ε)."""
    x = cloud(n, d, seed=3, mean=0.5)
    wanted = published_rankme(singular_values(x, center=False), d, epsilon)
    assert rankme(x, epsilon=epsilon).item() == pytest.approx(wanted, rel=1e-9)


def test_rankme_is_the_effective_rank_but_for_epsilon_and_the_cone():
    x = cloud(64, 16, seed=2)
    bare = effective_rank(x, center=False).item()
    assert rankme(x, epsilon=1e-12).item() == pytest.approx(bare, rel=1e-9)
    assert 0 < rankme(x).item() - bare < bare * 2 * 16 * 1e-7 * math.log(1e7)
    assert rankme(x + 5.0).item() < 0.9 * rankme(x + 5.0, center=True).item()


# --- gradients where eigenvalues are equal or none, and options -------------------------------


@pytest.mark.parametrize("metric", [effective_rank, condition])
def test_gradient_is_finite_for_duplicates_and_equal_singular_values(metric):
    cross = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    for rows in (cloud(3, 8).repeat(2, 1), cross, torch.full((6, 3), 0.1).double()):
        value = metric(rows.requires_grad_())
        if value.requires_grad:
            value.backward()
            assert bool(rows.grad.isfinite().all())


@pytest.mark.parametrize(
    ("metric", "options", "words"),
    [
        *((condition, {"quantile": q}, r"in \(0, 1\]") for q in (0.0, -0.5, 1.01, math.nan)),
        *((rankme, {"epsilon": e}, "epsilon must be above 0") for e in (0.0, -1e-7, math.nan)),
        *((explained_variance, {"n_directions": n}, "at least 1") for n in ([], [0], [1, -2])),
    ],
)
def test_options_out_of_range(metric, options, words):
    with pytest.raises(ValueError, match=words):
        metric(cloud(5, 3), **options)
