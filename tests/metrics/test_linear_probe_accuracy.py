"""Linear probe against scikit-learn's ridge classifier on the same folds."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier

from isotrain.geometry.scatter import stratified_folds
from isotrain.metrics.best_dimension_accuracy import best_dimension_accuracy
from isotrain.metrics.linear_probe_accuracy import _scores, linear_probe_accuracy
from tests.metrics.clouds import cloud


def accuracy(x, labels, **options):
    return linear_probe_accuracy(x, labels, **options)["accuracy"].item()


def ridge(train, l2):
    centred = train - train.mean(axis=0)
    return RidgeClassifier(alpha=l2 * (centred**2).sum() / train.shape[1])


@pytest.mark.parametrize(
    ("n", "d", "c"), [(20, 3, 2), (60, 10, 3), (30, 80, 2), (40, 32, 4), (200, 16, 5)]
)
@pytest.mark.parametrize("l2", [1e-3, 0.1, 3.0])
def test_equals_the_ridge_classifier_of_scikit_learn(n, d, c, l2):
    labels = torch.arange(n) % c
    x = cloud(n, d, seed=n, mean=2.0)
    x[:, 0] += 0.8 * labels
    folds = stratified_folds(labels, 4, seed=1).numpy()
    points, n_right = x.numpy(), 0
    for fold in range(4):
        train, test = folds != fold, folds == fold
        probe = ridge(points[train], l2).fit(points[train], labels.numpy()[train])
        n_right += (probe.predict(points[test]) == labels.numpy()[test]).sum()
    found = accuracy(x, labels, n_folds=4, l2=l2, seed=1)
    assert found == pytest.approx(n_right / n, abs=1e-12)


@pytest.mark.parametrize(("m", "d"), [(40, 6), (12, 50), (30, 30)])
def test_outputs_equal_those_of_scikit_learn(m, d):
    x, labels = cloud(m + 9, d, seed=m, mean=1.0), torch.arange(m + 9) % 3
    onehot = torch.nn.functional.one_hot(labels).double()
    found = _scores(x[:m], onehot[:m], x[m:], 0.2)
    probe = ridge(x[:m].numpy(), 0.2).fit(x[:m].numpy(), labels[:m].numpy())
    expected = (probe.decision_function(x[m:].numpy()) + 1.0) / 2.0  # its targets are ±1
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


def test_separable_and_unrelated_classes():
    labels = torch.arange(300) % 3
    apart = cloud(300, 12, seed=1)
    apart[torch.arange(300), labels] += 12.0
    assert accuracy(apart, labels) == 1.0
    assert accuracy(cloud(300, 12, seed=2), labels) == pytest.approx(1 / 3, abs=0.1)


def test_memorising_is_no_merit():
    x, labels = cloud(60, 500, seed=3), torch.arange(60) % 2  # any labels fit the training rows
    assert accuracy(x, labels, l2=1e-6) == pytest.approx(0.5, abs=0.2)


def test_sees_what_no_single_dimension_holds():
    labels = torch.arange(400) % 2
    x = cloud(400, 40, seed=4) + 0.35 * (labels * 2.0 - 1.0)[:, None]
    single = best_dimension_accuracy(x, labels)["accuracy"].item()
    assert accuracy(x, labels) > single + 0.15


@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_equal_rows_give_the_majority(value):
    x = torch.full((300, 4), value, dtype=torch.float64)
    found = linear_probe_accuracy(x, torch.tensor([1] * 200 + [0] * 100))
    assert found["accuracy"].item() == pytest.approx(2 / 3, abs=1e-12)
    assert found["majority"].item() == pytest.approx(2 / 3, abs=1e-12)


def test_duplicated_and_constant_columns():
    labels = torch.arange(60) % 2
    x = cloud(60, 5, seed=7) + 0.6 * labels[:, None]
    doubled = torch.cat([x, x, torch.full((60, 3), 7.0)], dim=1)
    # The same rows up to scale, in more dimensions: λ·D stays a share of tr S.
    assert accuracy(doubled, labels, l2=0.13) == accuracy(x, labels, l2=0.05)


def test_errors():
    x, labels = cloud(8, 3), torch.arange(8) % 2
    with pytest.raises(ValueError, match="smallest class, 4 here, got 5; lower n_folds"):
        linear_probe_accuracy(x, labels)
    with pytest.raises(ValueError, match="n_folds must be from 2"):
        linear_probe_accuracy(x, labels, n_folds=1)
    for l2 in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="l2 must be positive"):
            linear_probe_accuracy(x, labels, n_folds=2, l2=l2)
    with pytest.raises(ValueError, match="slice a score"):
        linear_probe_accuracy(x, labels + 0.5)
    with pytest.raises(ValueError, match="two classes"):
        linear_probe_accuracy(x, labels * 0)
