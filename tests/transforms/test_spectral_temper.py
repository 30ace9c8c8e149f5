"""Partial whitening whose exponent follows from the spectrum. N embeddings, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.whitening import corrected_spectrum, evenness_of_power, temper_exponent
from isotrain.metrics.isoscore_corrected import isoscore_corrected
from isotrain.metrics.participation_ratio import participation_ratio
from isotrain.transforms.spectral_temper import SpectralTemper
from isotrain.transforms.zca import ZCA
from tests.clouds import correlated as cloud
from tests.clouds import normal

light = settings(max_examples=25)
spectra = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=20).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
targets = st.floats(0.05, 1.0)


def layer_of(d, target=0.5, **options):
    return SpectralTemper(d, target, **{"stats": "batch", **options}).double()


def rms_norm(x):
    return (x - x.mean(dim=0)).square().sum(dim=1).mean().sqrt()


# --- the exponent -----------------------------------------------------------------------------


@pytest.mark.parametrize("large", [3.0, 100.0, 1e6])
@pytest.mark.parametrize(("m", "target"), [(1, 0.8), (9, 0.5), (383, 0.5), (383, 0.9)])
def test_the_exponent_of_one_large_eigenvalue_is_a_root_of_a_quadratic(large, m, target):
    """(r + m)²/(r² + m) = target·(m + 1) for the tempered eigenvalue r ≥ 1 beside m ones."""
    a = target * (m + 1)
    r = (m + np.sqrt(a * m * (m + 1 - a))) / (a - 1)
    expected = max(0.0, 1.0 - np.log(r) / np.log(large))
    value = torch.ones(m + 1, dtype=torch.float64)
    value[m // 2] = large
    assert float(temper_exponent(value, target)) == pytest.approx(expected, abs=1e-9)


@given(spectra, targets)
@light
def test_the_target_is_reached_and_by_no_smaller_exponent(value, target):
    alpha = temper_exponent(value, target)
    assert 0.0 <= float(alpha) <= 1.0
    assert float(evenness_of_power(value, 1.0 - alpha)) >= target - 1e-12
    if float(alpha) > 1e-3:
        assert float(evenness_of_power(value, 1.001 - alpha)) <= target + 1e-12
    else:
        assert float(evenness_of_power(value, torch.tensor(1.0).double())) >= target - 1e-2


@given(spectra, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@light
def test_a_spectrum_is_more_even_the_smaller_its_power(value, one, other):
    low, high = (torch.tensor(p).double() for p in sorted((one, other)))
    assert evenness_of_power(value, low) >= evenness_of_power(value, high) - 1e-12


# --- the noise of the spectrum ----------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(32, 256), (200, 256), (1024, 64)])
def test_isotropic_embeddings_of_any_number_stay_as_they_are(n, d):
    """Their participation ratio is N·D/(N + D), an eighth of D for the first."""
    x = normal(n, d, mean=5.0)
    layer = layer_of(d, 0.5)
    y = layer(x)
    assert float(layer.counters["alpha"]) == 0.0
    torch.testing.assert_close(y, x - x.mean(dim=0))
    uncorrected = torch.linalg.eigvalsh(torch.cov(x.T)).clamp_min(1e-9)
    assert (float(temper_exponent(uncorrected, 0.5)) > 0) == (n < d)


@pytest.mark.parametrize(("n", "d"), [(100, 60), (100, 300)])
@pytest.mark.parametrize("decay", [0.9, 0.97])
def test_the_corrected_spectrum_has_the_isoscore_of_the_unbiased_estimate(n, d, decay):
    """The other estimate, of U-statistics, holds for every distribution."""
    scale = decay ** torch.arange(d).double()
    found, expected = [], []
    for seed in range(8):
        x = normal(n, d, seed=seed, mean=0.0) * scale
        value = torch.linalg.eigvalsh(torch.cov(x.T)).clamp_min(0.0)
        even = evenness_of_power(corrected_spectrum(value, n), torch.tensor(1.0).double())
        found.append((float(even) * d - 1) / (d - 1))
        expected.append(float(isoscore_corrected(x)))
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.05)
    true = (float(scale.square().sum() ** 2 / scale.pow(4).sum()) - 1) / (d - 1)
    assert np.mean(found) == pytest.approx(true, rel=0.1)


@given(spectra, st.integers(2, 5000), st.floats(1e-3, 1e3))
@light
def test_correcting_keeps_order_and_positivity_and_ignores_scale(value, n, scale):
    n = max(n, len(value) + 2)
    found = corrected_spectrum(value, n)
    assert float(found.mean()) == pytest.approx(1.0)
    assert float(found.min()) > 0.0
    unit = value / value.mean()
    assert bool(((found - 1.0).abs() <= (unit - 1.0).abs() + 1e-12).all())
    torch.testing.assert_close(corrected_spectrum(scale * value, n), found)


# --- the layer --------------------------------------------------------------------------------


def slow(x, target):
    """With NumPy, on the whole covariance, and a search over a grid."""
    points, (n, d) = x.numpy(), x.shape
    rows = points - points.mean(axis=0)
    value, vector = np.linalg.eigh(np.cov(rows, rowvar=False))
    unit, m = value.clip(0) / value.mean(), n - 1
    estimate = m**2 / ((m - 1) * (m + 2)) * ((unit**2).sum() - d**2 / m)  # of tr Σ²
    k = np.sqrt(max(0.0, estimate / d - 1.0) / ((unit**2).mean() - 1.0))
    corrected = 1.0 + k * (unit - 1.0)
    grid = np.linspace(0.0, 1.0, 20_001)
    even = [(corrected**p).sum() ** 2 / (corrected ** (2 * p)).sum() / d for p in 1.0 - grid]
    alpha = grid[np.argmax(np.array(even) >= target - 1e-12)]
    y = rows @ (vector * corrected ** (-alpha / 2)) @ vector.T
    return torch.from_numpy(y * np.sqrt((rows**2).sum() / (y**2).sum())), alpha


@pytest.mark.parametrize(("n", "d"), [(16, 42), (42, 42), (200, 12)])
@pytest.mark.parametrize("target", [0.55, 0.8])
def test_the_layer_is_numpys(n, d, target):
    x = cloud(n, d, mean=4.0)
    layer = layer_of(d, target)
    expected, alpha = slow(x, target)
    assert 0.05 < alpha < 0.95
    torch.testing.assert_close(layer(x), expected, atol=1e-3, rtol=0)
    assert float(layer.counters["alpha"]) == pytest.approx(alpha, abs=1e-4)


@given(st.integers(3, 40), st.integers(3, 12), targets, st.integers(0, 9999))
@light
def test_the_rms_norm_stays_and_rotations_commute(n, d, target, seed):
    x = cloud(n, d, seed, mean=2.0)
    layer = layer_of(d, max(target, 1.01 / d))
    y = layer(x)
    torch.testing.assert_close(rms_norm(y), rms_norm(x))
    axes = torch.linalg.qr(cloud(d, d, seed + 1))[0]
    torch.testing.assert_close(layer(7.0 * (x + 3.0) @ axes), 7.0 * y @ axes, atol=1e-5, rtol=1e-5)


def on_new_embeddings(n, d, decay, target):
    """Participation ratio over D of new embeddings: as they are, tempered, and uncorrected."""
    scale = decay ** torch.arange(d).double()
    x, new = (normal(size, d, seed=size, mean=0.0) * scale for size in (n, 10_000))
    layer = layer_of(d, target)
    layer.fit(x)
    value, vector = torch.linalg.eigh(torch.cov(x.T))
    value = value.clamp_min(1e-9 * float(value.amax()))
    raw = new @ (vector * value ** (-temper_exponent(value, target) / 2.0))
    return [float(participation_ratio(y)) / d for y in (new, layer.eval()(new), raw)]


def test_new_embeddings_come_to_the_target_if_there_were_many():
    before, after, _ = on_new_embeddings(8192, 64, 0.96, 0.8)
    assert before < 0.5
    assert after == pytest.approx(0.8, abs=0.05)


def test_of_few_embeddings_the_correction_makes_new_ones_more_even_and_not_less():
    before, after, uncorrected = on_new_embeddings(128, 192, 0.98, 0.5)
    assert uncorrected < before < 1.1 * before < after < 0.5


def test_whitening_is_soft_zca_with_an_epsilon_of_the_noise():
    x = cloud(300, 8, mean=1.0)
    layer = layer_of(8, 1.0)
    y = layer(x)
    assert float(layer.counters["alpha"]) == pytest.approx(1.0, abs=1e-6)
    value = torch.linalg.eigvalsh(torch.cov(x.T))
    corrected = corrected_spectrum(value, 300)
    k = float((corrected.max() - 1.0) / (value.max() / value.mean() - 1.0))
    soft = ZCA(8, epsilon=(1.0 - k) / k, stats="batch").double()(x)
    torch.testing.assert_close(y, soft * rms_norm(x) / rms_norm(soft), rtol=1e-5, atol=1e-6)


def test_the_exponent_is_frozen_with_the_map_and_logged_where_one_map_trains():
    x = cloud(100, 8)
    layer = layer_of(8, 0.9, stats="start")
    layer.fit(x)
    expected = layer.estimate(x).alpha
    assert torch.equal(layer.alpha, expected)
    assert float(expected) > 0.05
    first = layer(x)
    assert torch.equal(layer.counters["alpha"], expected)
    layer.eval()
    torch.testing.assert_close(layer(x), first)
    assert "alpha" not in layer.counters  # counters of an evaluation are summed over its batches


def test_two_embeddings_say_nothing_of_a_spectrum():
    x = cloud(2, 6)
    layer = layer_of(6)
    torch.testing.assert_close(layer(x), x - x.mean(dim=0))
    assert float(layer.counters["alpha"]) == 0.0
