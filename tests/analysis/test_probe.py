"""Heads of scikit-learn: what penalises and chooses them, and what they never see."""

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from isotrain.analysis import probe as probes
from isotrain.analysis.probe import best_penalty, choose_penalty, mean_loss
from isotrain.geometry.groups import hashed_order

PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)


def cloud(n, f=30, n_classes=2, signal=3.0, seed=0):
    """Overlapping classes, with scales and offsets all over the place."""
    draw = np.random.default_rng(seed)
    label = draw.integers(n_classes, size=n)
    x = draw.normal(size=(n, f)) * np.linspace(0.1, 30, f) + 5.0
    x[:, :n_classes] += signal * np.eye(n_classes)[label]
    return x, label


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_the_penalty_is_the_best_of_held_out_examples_and_all_are_fitted_at_it(n_classes):
    x, label = cloud(200, n_classes=n_classes or 2)
    label = label if n_classes else x[:, 0] * 2 + x[:, 1]
    found = choose_penalty(x, label, PENALTIES, 0.25, seed=0, n_classes=n_classes)
    order = hashed_order(200, 0).numpy()
    out, kept = order[:50], order[50:]
    losses = {}
    for penalty in PENALTIES:
        scaler = StandardScaler().fit(x[kept])
        own = estimator(n_classes, penalty, len(kept)).fit(scaler.transform(x[kept]), label[kept])
        if n_classes:
            share = own.predict_proba(scaler.transform(x[out]))
            losses[penalty] = -np.log(share[np.arange(50), label[out]]).mean()
        else:
            losses[penalty] = np.square(own.predict(scaler.transform(x[out])) - label[out]).mean()
    assert found.penalty == min(losses, key=losses.get)
    assert found.held_out_loss == pytest.approx(min(losses.values()), rel=0.01)
    assert found.n_held_out == 50
    scaler = StandardScaler().fit(x)
    whole = estimator(n_classes, found.penalty, 200).fit(scaler.transform(x), label)
    if n_classes:
        expected = whole.predict_proba(scaler.transform(x))
        np.testing.assert_allclose(found.probe.predict_proba(x), expected, atol=1e-3)
    else:
        np.testing.assert_allclose(found.probe.predict(x), whole.predict(scaler.transform(x)))


def estimator(n_classes, penalty, n):
    if not n_classes:
        return Ridge(alpha=penalty * n)
    columns = 2 if n_classes == 2 else 1  # of two classes it has one column, of half the penalty
    return LogisticRegression(C=columns / (penalty * n), tol=1e-10, max_iter=10_000)


def test_the_penalised_loss_has_a_column_for_each_class():
    """Mean log loss + λ/2·‖W‖² of two classes, at its minimum: no step makes it smaller."""
    x, label = cloud(80, 3)
    probe = probes.linear_probe(2, 0.1, 80).fit(x, label)
    z = probe.steps[0][1].transform(x)
    model = probe.steps[-1][1]
    w = np.concatenate([-model.coef_ / 2, model.coef_ / 2])  # ‖W‖² least at a given w₁ − w₀
    b = np.array([-model.intercept_[0] / 2, model.intercept_[0] / 2])

    def loss(w_CF):
        logits = z @ w_CF.T + b
        share = np.exp(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
        return -np.log(share[np.arange(80), label]).mean() + 0.05 * np.square(w_CF).sum()

    draw = np.random.default_rng(0)
    for _ in range(20):
        assert loss(w) <= loss(w + 1e-3 * draw.normal(size=w.shape)) + 1e-9


def test_three_rises_in_a_row_end_the_search_and_a_bump_does_not(monkeypatch):
    x, label = cloud(40)
    for losses, n_tried in (([3, 4, 5, 6, 1], 4), ([3, 4, 5, 2, 1], 5)):
        left = iter(losses)
        tried = []

        def given(probe, *rest, tried=tried, left=left):
            tried.append(probe)
            return float(next(left))

        monkeypatch.setattr(probes, "mean_loss", given)
        found = best_penalty(x[:30], label[:30], x[30:], label[30:], PENALTIES, 2)
        assert len(tried) == n_tried
        assert found.held_out_loss == min(losses[:n_tried])
        assert found.penalty == PENALTIES[losses.index(found.held_out_loss)]


def test_the_chosen_probe_is_as_it_was_at_its_penalty():
    x, label = cloud(120, signal=0.0)
    parts = x[:90], label[:90], x[90:], label[90:]
    found = best_penalty(*parts, PENALTIES, 2)
    assert found.penalty == PENALTIES[0]
    assert mean_loss(found.probe, *parts[2:], 2) == found.held_out_loss
    alone = best_penalty(*parts, PENALTIES[:1], 2)
    np.testing.assert_allclose(
        found.probe.predict_proba(x), alone.probe.predict_proba(x), atol=1e-6
    )


def test_one_class_and_classes_that_training_lacks_are_no_failure():
    x, label = cloud(40, n_classes=3)
    constant = choose_penalty(x, np.ones(40, dtype=int), PENALTIES, 0.25, 0, 3)
    assert set(constant.probe.predict(x)) == {1}
    kept = np.where(label == 2, 1, label)
    found = best_penalty(x[:30], kept[:30], x[30:], label[30:], PENALTIES, 3)
    assert np.isfinite(found.held_out_loss)


def test_too_few_rows_are_rejected():
    with pytest.raises(ValueError, match="held out of 5; give more training rows"):
        choose_penalty(np.zeros((5, 1)), np.zeros(5), [1.0], 0.2, 0)


def test_a_fit_takes_the_threads_of_the_analysis():
    """Two analyses of a thread each on two cores would wait for one another."""
    seen = []

    class Counting(DummyClassifier):
        def fit(self, x, label):
            seen.append({pool["num_threads"] for pool in threadpool_info()})
            return super().fit(x, label)

    torch.set_num_threads(1)
    probes._fitted(Counting(), *cloud(40), 2)
    assert seen == [{1}]
