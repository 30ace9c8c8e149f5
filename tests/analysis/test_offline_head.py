"""The linear head against scikit-learn, and what it does not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from isotrain.analysis.offline_head import fit_logistic


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    x_MD = torch.randn(400, 10, generator=generator) * torch.linspace(0.1, 3.0, 10) + 5.0
    noise_M = torch.randn(400, generator=generator)
    label_M = (x_MD[:, 0] * 8 + x_MD[:, 9] - 45 + noise_M > 0).long()
    return x_MD, label_M


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
def test_against_scikit_learn(rows, l2):
    x_MD, label_M = rows
    head = fit_logistic(x_MD, label_M, l2)
    z_MD = ((x_MD.double() - head.mean_D) / head.scale).numpy()
    assert np.var(z_MD, axis=0).mean() == pytest.approx(1.0)
    oracle = LogisticRegression(C=1 / (l2 * len(z_MD)), tol=1e-10, max_iter=10_000)
    oracle.fit(z_MD, label_M.numpy())
    np.testing.assert_allclose(head.weight_D.numpy(), oracle.coef_[0], atol=1e-4)
    assert float(head.bias) == pytest.approx(oracle.intercept_[0], abs=1e-4)
    assert head(x_MD).tolist() == oracle.predict(z_MD).tolist()


def test_rotation_scale_and_shift_change_no_class(rows):
    x_MD, label_M = rows
    turn_DD = torch.linalg.qr(torch.randn(10, 10, generator=torch.Generator().manual_seed(3)))[0]
    moved_MD = 1000.0 * (x_MD @ turn_DD) - 7.0
    plain, moved = (fit_logistic(x, label_M, 1e-2) for x in (x_MD, moved_MD))
    assert plain(x_MD).tolist() == moved(moved_MD).tolist()


def test_equal_rows_give_the_larger_class():
    label_M = torch.tensor([0, 1, 1])
    assert fit_logistic(torch.ones(3, 4), label_M, 1e-3)(torch.ones(2, 4)).tolist() == [1, 1]


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="needs two classes"):
        fit_logistic(torch.randn(4, 2), torch.ones(4), 1e-3)
