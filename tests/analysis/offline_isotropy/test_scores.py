"""Correlations against scipy, errors against theory."""

import numpy as np
import pytest
import scipy.stats
import torch

from isotrain.analysis.offline_isotropy.analysis import agreement, cosines, fit_head


@pytest.fixture(scope="module")
def scored():
    rng = np.random.default_rng(0)
    gold_P = rng.integers(0, 6, 110).astype(float)  # with ties, as human scores have
    offset_P = np.repeat([0.0, 4.0, -3.0], [30, 60, 20])
    cosine_SP = np.stack([gold_P + offset_P + rng.normal(0, s, 110) for s in (1.0, 3.0)])
    return gold_P, cosine_SP


def measured(scored, score):
    return agreement(score, *scored, baseline=0, n_resamples=50, seed=0)


@pytest.mark.parametrize(("score", "oracle"), [("pearson", "pearsonr"), ("spearman", "spearmanr")])
def test_all_pairs_against_scipy(scored, score, oracle):
    gold_P, cosine_SP = scored
    found = measured(scored, score)
    expected = [100 * getattr(scipy.stats, oracle)(gold_P, c)[0] for c in cosine_SP]
    np.testing.assert_allclose(found.value_S, expected, atol=1e-9)
    np.testing.assert_allclose(found.gain_S, np.array(expected) - expected[0], atol=1e-9)


def test_the_error_of_a_correlation_of_gaussians():
    rng = np.random.default_rng(1)
    x_P = rng.normal(size=1000)
    y_P = 0.6 * x_P + 0.8 * rng.normal(size=1000)
    found = agreement("pearson", x_P, y_P[None], 0, 2000, 0)
    assert found.error_S[0] == pytest.approx(100 * (1 - 0.6**2) / np.sqrt(1000), rel=0.12)


def test_errors_of_gains_are_paired(scored):
    gold_P, cosine_SP = scored
    near_SP = np.stack([cosine_SP[0], 2.0 * cosine_SP[0] + 1.0, cosine_SP[1]])
    found = agreement("spearman", gold_P, near_SP, 0, 200, 0)
    assert found.gain_S[1] == pytest.approx(0.0, abs=1e-9)  # the same order of pairs
    assert found.gain_error_S[1] == pytest.approx(0.0, abs=1e-9)
    assert found.error_S[1] > 1
    assert 0 < found.gain_error_S[2] < found.error_S[0] + found.error_S[2]


def test_cosines_that_are_all_equal_have_no_correlation(scored):
    gold_P, cosine_SP = scored
    flat_SP = np.stack([cosine_SP[0], np.full(110, 0.5)])
    found = agreement("pearson", gold_P, flat_SP, 0, 50, 0)
    assert np.isfinite(found.value_S[0])
    assert np.isnan(found.value_S[1])
    assert np.isnan(found.error_S[1])


def test_cosines_against_numpy():
    x_UD = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    first_P, second_P = np.array([0, 1, 2]), np.array([3, 4, 2])
    a, b = x_UD.double().numpy()[first_P], x_UD.double().numpy()[second_P]
    expected_P = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(cosines(x_UD, first_P, second_P), expected_P, atol=1e-12)


def test_a_head_has_one_scale_so_that_rotation_scale_and_shift_change_nothing():
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(120, 6, generator=generator) * torch.linspace(0.1, 3.0, 6) + 2.0
    class_N = (x_ND[:, 0] > x_ND[:, 0].mean()).long()  # reported by a small dimension
    turn_DD = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    plain, *others = (
        fit_head(rows, class_N, 0.1).predict_proba(rows.double().numpy())
        for rows in (x_ND, x_ND @ turn_DD, 5.0 * x_ND - 3.0)
    )
    for other in others:
        np.testing.assert_allclose(other, plain, atol=1e-4)


def test_the_penalty_of_a_head_is_of_a_column_for_each_class():
    """λ/2·‖W‖² with w₂ = −w₁ = w/2: at its minimum the gradient of mean log loss is −λ·w/2."""
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(200, 4, generator=generator).double()
    class_N = (x_ND[:, 0] + torch.randn(200, generator=generator) > 0).long()
    head = fit_head(x_ND, class_N, 0.3)
    scaled_ND, w_D = head[0].transform(x_ND.numpy()), head[-1].coef_[0]
    apart_N = head.predict_proba(x_ND.numpy())[:, 1] - class_N.numpy()
    np.testing.assert_allclose(scaled_ND.T @ apart_N / 200, -0.3 * w_D / 2, atol=1e-4)
