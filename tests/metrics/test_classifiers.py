"""One threshold, a linear probe and k-means against loops and scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from isotrain.geometry.groups import stratified_folds
from isotrain.geometry.kmeans import kmeans
from isotrain.metrics import best_dimension_accuracy as module
from isotrain.metrics.best_dimension_accuracy import best_dimension_accuracy
from isotrain.metrics.cluster_label_nmi import cluster_label_nmi
from isotrain.metrics.linear_probe_accuracy import linear_probe_accuracy
from tests.clouds import cloud, light, seeded


def best(x, labels, **options):
    return best_dimension_accuracy(x, labels, **options)["accuracy"].item()


def best_rule(x, labels):
    """Every cut of every coordinate, in turn; the first of the best."""
    best = (-1,)
    for d in range(x.shape[1]):
        values = np.unique(x[:, d])
        cuts = [-np.inf, *((values[:-1] + values[1:]) / 2)]
        for cut in cuts:
            low, high = labels[x[:, d] <= cut], labels[x[:, d] > cut]
            n_low = np.bincount(low, minlength=labels.max() + 1)
            n_high = np.bincount(high, minlength=labels.max() + 1)
            if n_low.max() + n_high.max() > best[0]:
                best = (n_low.max() + n_high.max(), d, cut, n_low.argmax(), n_high.argmax())
    return best


def best_by_hand(x, labels, n_folds, seed=0):
    folds = stratified_folds(labels, n_folds, seed).numpy()
    x, labels, n_right = x.double().numpy(), labels.numpy(), 0
    for fold in range(n_folds):
        _, d, cut, low, high = best_rule(x[folds != fold], labels[folds != fold])
        found = np.where(x[folds == fold, d] <= cut, low, high)
        n_right += (found == labels[folds == fold]).sum()
    return n_right / len(x)


def clouds():
    for n, d, c, seed in ((10, 3, 2, 0), (30, 5, 3, 1), (24, 40, 2, 2), (60, 2, 5, 3)):
        labels = torch.arange(n) % c
        yield cloud(n, d, seed) + 0.5 * labels[:, None], labels
        yield cloud(n, d, seed).round(), labels  # many ties


@pytest.mark.parametrize(("x", "labels"), list(clouds()))
def test_is_the_loop_over_cuts(x, labels):
    expected = best_rule(x.numpy(), labels.numpy())[0] / len(x)
    assert best(x, labels, n_folds=1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("x", "labels"), list(clouds()))
def test_held_out_is_the_loop_over_folds_and_cuts(x, labels):
    for n_folds, seed in ((2, 0), (5, 1)):
        expected = best_by_hand(x, labels, n_folds, seed)
        found = best(x, labels, n_folds=n_folds, seed=seed)
        assert found == pytest.approx(expected, abs=1e-12)


def test_blocks_of_columns_change_nothing(monkeypatch):
    for x, labels in clouds():
        expected = best(x, labels, n_folds=2)
        monkeypatch.setattr(module, "BLOCK_ENTRIES", 2 * len(x))
        assert best(x, labels, n_folds=2) == expected
        monkeypatch.undo()


@given(st.integers(6, 30), st.integers(1, 6), st.integers(0, 10_000))
@light
def test_monotone_changes_of_coordinates_say_nothing(n, d, seed):
    x, labels = cloud(n, d, seed), torch.randint(0, 2, (n,), generator=seeded(seed))
    labels[:4] = torch.tensor([0, 0, 1, 1])
    found = best_dimension_accuracy(x, labels, n_folds=1)
    assert found["majority"].item() == pytest.approx(labels.bincount().max().item() / n)
    assert found["majority"] <= found["accuracy"]
    for scale in (2.0**-600, 2.0**600):
        assert best(x * scale, labels, n_folds=2) == best(x, labels, n_folds=2)
    for bent in (-x, x.exp(), x**3, torch.atan(-x)):
        assert best(bent, labels, n_folds=1) == found["accuracy"].item()


def test_two_neighbouring_numbers_are_reported_apart():
    # Half-way between them rounds to one of the two.
    for low in (1.0, 1.0 + 2.0**-52, -1.0):
        high = float(np.nextafter(low, 2.0))
        x = torch.tensor([low, high] * 6, dtype=torch.float64)[:, None]
        assert best(x, torch.arange(12) % 2, n_folds=3) == 1.0


def probed(x, labels, **options):
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
    found = probed(x, labels, n_folds=4, l2=l2, seed=1)
    assert found == pytest.approx(n_right / n, abs=1e-12)


@pytest.mark.parametrize("metric", [linear_probe_accuracy, best_dimension_accuracy])
def test_tokens_of_one_example_are_not_held_out_from_each_other(metric):
    """Labels are random: what is told apart is the example."""
    examples = torch.arange(120).repeat_interleave(5)
    x = cloud(120, 60, seed=1)[examples] + 1e-3 * cloud(600, 60, seed=2)
    labels = (torch.randperm(120, generator=seeded(3)) % 2)[examples]
    assert metric(x, labels, examples=examples)["accuracy"].item() < 0.65
    if metric is linear_probe_accuracy:
        assert metric(x, labels)["accuracy"].item() > 0.75


def both(x, labels, **options):
    found = cluster_label_nmi(x, labels, **options)
    return found["nmi"].item(), found["ari"].item()


@pytest.mark.parametrize(
    ("n", "d", "k"), [(40, 3, 2), (100, 8, 5), (12, 30, 3), (5, 2, 8), (4, 2, 8), (9, 2, 1)]
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_nmi_and_ari_are_those_of_scikit_learn(n, d, k, n_classes):
    x, labels = cloud(n, d, seed=n), torch.arange(n) % n_classes
    centred = (x - x.mean(dim=0)) / (x - x.mean(dim=0)).abs().amax()
    generator = torch.Generator().manual_seed(3)
    clusters = kmeans(centred, k, generator=generator, n_iterations=100).assignment_N
    expected = (
        normalized_mutual_info_score(labels, clusters),
        adjusted_rand_score(labels, clusters),
    )
    assert both(x, labels, n_clusters=k, seed=3) == pytest.approx(expected, abs=1e-12)
