"""Linear probes against scikit-learn, and penalties chosen on training rows alone."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from isotrain.analysis.linear_probe import (
    choose_penalty,
    fit_logistic,
    fit_ridge,
    log_loss,
    squared_error,
)
from isotrain.geometry.groups import hashed_order


def cloud(n, f, n_classes=2, signal=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(n_classes, (n,), generator=generator)
    x = torch.randn(n, f, generator=generator) * torch.linspace(0.1, 30, f) + 5.0
    x[:, :n_classes] += signal * torch.nn.functional.one_hot(label, n_classes)
    return x, label


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shape", [(80, 6), (20, 40)])
def test_logistic_regression_is_that_of_scikit_learn(n_classes, shape):
    x, label = cloud(*shape, n_classes)
    scaler = StandardScaler().fit(x.double())
    fits = fit_logistic(x, label, [1.0, 0.1, 0.01], n_classes)
    for penalty, probe in zip([1.0, 0.1, 0.01], fits, strict=True):
        theirs = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-10, max_iter=10_000)
        if n_classes == 2:  # theirs has one column, of half the penalty
            theirs = LogisticRegression(C=2 / (penalty * len(x)), tol=1e-10, max_iter=10_000)
        theirs.fit(scaler.transform(x.double()), label)
        new = cloud(*shape, n_classes, seed=1)[0]
        expected = theirs.predict_proba(scaler.transform(new.double()))
        assert np.allclose(probe(new).softmax(dim=1).numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("shape", [(80, 6), (20, 40)])
def test_ridge_regression_is_that_of_scikit_learn(shape):
    x, _ = cloud(*shape)
    score = x[:, 0] * 2 + torch.randn(len(x), generator=torch.Generator().manual_seed(3))
    scaler = StandardScaler().fit(x.double())
    for penalty, probe in zip([1.0, 0.01], fit_ridge(x, score, [1.0, 0.01]), strict=True):
        theirs = Ridge(alpha=penalty * len(x)).fit(scaler.transform(x.double()), score.double())
        new = cloud(*shape, seed=1)[0]
        expected = theirs.predict(scaler.transform(new.double()))
        assert np.allclose(probe(new)[:, 0].numpy(), expected, atol=1e-6)


def test_constant_features_change_nothing():
    x, label = cloud(60, 5)
    more = torch.cat([x, torch.full((60, 2), 7.3)], dim=1)
    plain, wide = (next(fit_logistic(rows, label, [0.1])) for rows in (x, more))
    assert torch.allclose(plain(x), wide(more), atol=1e-6)
    odd = torch.cat([x, torch.full((60, 2), 8.0)], dim=1)
    assert torch.isfinite(wide(odd)).all()


def test_scale_and_shift_of_features_change_nothing():
    x, label = cloud(60, 5)
    moved = x * torch.tensor([1e3, 1e-3, 1.0, 5.0, 0.1]) + 100.0
    one, two = next(fit_logistic(x, label, [0.1])), next(fit_logistic(moved, label, [0.1]))
    assert torch.allclose(one(x), two(moved), atol=1e-4)


def fits_with(n_classes=2):
    return partial(fit_logistic, n_classes=n_classes)


PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)


def test_the_penalty_is_the_best_of_held_out_rows_tried_one_by_one():
    x, label = cloud(200, 30, signal=3.0)
    found = choose_penalty(fits_with(), log_loss, x, label, PENALTIES, 0.25, seed=0)
    order = hashed_order(200, 0)
    out, kept = order[:50], order[50:]
    losses = {}
    for penalty in PENALTIES:
        probe = next(fit_logistic(x[kept], label[kept], [penalty]))
        losses[penalty] = float(log_loss(probe(x[out]), label[out]))
    assert found.penalty == min(losses, key=losses.get)
    assert found.held_out_loss == pytest.approx(min(losses.values()), rel=1e-4)
    assert found.n_held_out == 50
    whole = next(fit_logistic(x, label, [found.penalty]))
    assert torch.allclose(found.probe(x), whole(x), atol=1e-6)


def stub(path):
    """A fit whose held-out loss at each penalty is given."""

    def fit(x_NF, label_N, penalties):
        for penalty in penalties:
            tried.append(penalty)
            yield lambda x_NF, penalty=penalty: torch.tensor(path[penalty])

    tried = []
    found = choose_penalty(
        fit, lambda output, label: output, torch.zeros(20, 1), torch.zeros(20), [*path], 0.25, 0
    )
    return found, tried[:-1]  # the last one is fitted on all rows


def test_a_bump_of_the_path_does_not_end_the_search():
    generator = np.random.default_rng(0)
    n_bumpy = 0
    for _ in range(100):
        losses = 1 / np.arange(1, 10) + generator.normal(0, 0.03, 9)
        path = dict(zip(np.logspace(1, -3, 9).tolist(), losses.tolist(), strict=True))
        rises = np.diff(losses) > 0
        if any(all(rises[k : k + 3]) for k in range(7)):
            continue
        n_bumpy += bool(rises[:-1].any())
        found, tried = stub(path)
        assert found.penalty == min(path, key=path.get)
        assert found.held_out_loss == pytest.approx(min(losses))
        assert len(tried) == 9
    assert n_bumpy > 30


def test_three_rises_in_a_row_end_the_search():
    path = dict(zip([9.0, 8.0, 7.0, 6.0, 5.0, 4.0], [1.0, 2.0, 3.0, 4.0, 0.0, 0.0], strict=True))
    found, tried = stub(path)
    assert (found.penalty, tried) == (9.0, [9.0, 8.0, 7.0, 6.0])


def test_noise_asks_for_a_large_penalty_and_signal_for_a_small_one():
    x, label = cloud(200, 40, signal=0.0)
    noise = choose_penalty(fits_with(), log_loss, x, label, PENALTIES, 0.25, seed=0)
    x, label = cloud(200, 40, signal=6.0)
    signal = choose_penalty(fits_with(), log_loss, x, label, PENALTIES, 0.25, seed=0)
    assert noise.penalty >= 1.0
    assert signal.penalty < 1.0
    assert noise.held_out_loss > 0.6 > 0.1 > signal.held_out_loss


def test_scores_are_chosen_by_their_squared_error():
    x, _ = cloud(200, 30)
    score = x[:, 0] + 0.1 * torch.randn(200, generator=torch.Generator().manual_seed(1))
    found = choose_penalty(fit_ridge, squared_error, x, score, PENALTIES, 0.25, seed=0)
    assert found.penalty <= 0.01
    assert squared_error(found.probe(x), score) < 0.1


def test_the_order_of_penalties_does_not_matter():
    x, label = cloud(100, 10, signal=3.0)
    one, two = (
        choose_penalty(fits_with(), log_loss, x, label, given, 0.25, seed=0)
        for given in (PENALTIES, PENALTIES[::-1])
    )
    assert one.penalty == two.penalty


def test_a_class_that_the_kept_rows_lack_is_no_failure():
    x, label = cloud(40, 5)
    label[hashed_order(40, 0)[0]] = 2  # the only row of its class is held out
    found = choose_penalty(fits_with(3), log_loss, x, label, PENALTIES, 0.25, seed=0)
    assert found.probe(x).shape == (40, 3)


def test_too_few_rows_are_refused():
    x, label = cloud(4, 3)
    with pytest.raises(ValueError, match="held out of 4"):
        choose_penalty(fits_with(), log_loss, x, label, PENALTIES, 0.1, seed=0)


def test_one_scale_for_all_features_is_that_of_their_mean_variance():
    x, label = cloud(80, 6)
    probe = next(fit_logistic(x, label, [0.1], one_scale=True))
    z = ((x.double() - probe.mean_F) / probe.sd_F).numpy()
    assert np.var(z, axis=0).mean() == pytest.approx(1.0)
    theirs = LogisticRegression(C=2 / (0.1 * len(x)), tol=1e-10, max_iter=10_000).fit(z, label)
    assert np.allclose(probe(x).softmax(dim=1).numpy(), theirs.predict_proba(z), atol=1e-4)


def test_with_one_scale_rotation_scale_and_shift_change_nothing():
    x, label = cloud(80, 6)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3)))
    moved = 1000.0 * (x @ turn) - 7.0
    one, two = (next(fit_logistic(r, label, [0.01], one_scale=True)) for r in (x, moved))
    assert torch.allclose(one(x), two(moved), atol=1e-4)


def test_equal_rows_give_the_larger_class():
    probe = next(fit_logistic(torch.ones(3, 4), torch.tensor([0, 1, 1]), [1e-3], one_scale=True))
    assert probe(torch.ones(2, 4)).argmax(dim=1).tolist() == [1, 1]
