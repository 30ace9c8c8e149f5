"""Best single coordinate against a loop over all cuts and scikit-learn's stumps."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from isotrain.geometry.scatter import stratified_folds
from isotrain.metrics import best_dimension_accuracy as module
from isotrain.metrics.best_dimension_accuracy import best_dimension_accuracy
from tests.metrics.clouds import cloud, light


def accuracy(x, labels, **options):
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


def by_hand(x, labels, n_folds, seed=0):
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
    assert accuracy(x, labels, n_folds=1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("x", "labels"), list(clouds()))
def test_held_out_is_the_loop_over_folds_and_cuts(x, labels):
    for n_folds, seed in ((2, 0), (5, 1)):
        expected = by_hand(x, labels, n_folds, seed)
        found = accuracy(x, labels, n_folds=n_folds, seed=seed)
        assert found == pytest.approx(expected, abs=1e-12)


def test_is_at_least_every_stump_of_scikit_learn():
    for x, labels in clouds():
        found = accuracy(x, labels, n_folds=1)
        for criterion in ("gini", "entropy"):
            stump = DecisionTreeClassifier(max_depth=1, criterion=criterion)
            score = stump.fit(x.numpy(), labels.numpy()).score(x.numpy(), labels.numpy())
            assert found >= score - 1e-12


def test_blocks_of_columns_change_nothing(monkeypatch):
    for x, labels in clouds():
        expected = accuracy(x, labels, n_folds=2)
        monkeypatch.setattr(module, "BLOCK_ENTRIES", 2 * len(x))
        assert accuracy(x, labels, n_folds=2) == expected
        monkeypatch.undo()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_coordinate_that_decides_is_found_both_ways_round(sign):
    labels = torch.arange(100) % 2
    x = cloud(100, 30, seed=4)
    x[:, 17] = sign * (labels * 2.0 - 1.0) + 0.1 * x[:, 17]
    assert accuracy(x, labels) == 1.0
    rotation = torch.linalg.qr(cloud(30, 30, seed=5))[0]
    assert accuracy(x @ rotation, labels) < 0.9  # it is the coordinate that counts


def test_noise_is_at_chance_held_out_and_above_it_on_the_same_rows():
    labels = torch.arange(200) % 2
    held_out = [accuracy(cloud(200, 100, seed), labels) for seed in range(8)]
    flattered = [accuracy(cloud(200, 100, seed), labels, n_folds=1) for seed in range(8)]
    assert np.mean(held_out) == pytest.approx(0.5, abs=0.05)
    assert min(flattered) > 0.58


@given(st.integers(6, 30), st.integers(1, 6), st.integers(0, 10_000))
@light
def test_invariances_and_range(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x, labels = cloud(n, d, seed), torch.randint(0, 2, (n,), generator=generator)
    labels[:4] = torch.tensor([0, 0, 1, 1])
    held_out, same = accuracy(x, labels, n_folds=2), accuracy(x, labels, n_folds=1)
    found = best_dimension_accuracy(x, labels, n_folds=1)
    majority = max(float((labels == c).double().mean()) for c in (0, 1))
    assert found["majority"].item() == pytest.approx(majority, abs=1e-12)
    assert 0.0 <= held_out <= 1.0
    assert majority <= same <= 1.0
    scale_D = torch.rand(d, generator=generator, dtype=torch.float64) + 0.1
    shift_D = cloud(1, d, seed + 1)[0] * 10.0
    for scale in (1.0, 2.0**-600, 2.0**600):
        moved = (x * scale_D + shift_D) * scale
        assert accuracy(moved, labels, n_folds=2) == held_out
    for bent in (-x, x.exp(), x**3, torch.atan(-x)):
        assert accuracy(bent, labels, n_folds=1) == same
    order = torch.randperm(n, generator=generator)
    assert accuracy(x[order], labels[order], n_folds=1) == same
    assert accuracy(x, labels * 3 + 2, n_folds=2) == held_out


def test_two_neighbouring_numbers_are_told_apart():
    # Half-way between them rounds to one of the two.
    for low in (1.0, 1.0 + 2.0**-52, -1.0):
        high = float(np.nextafter(low, 2.0))
        x = torch.tensor([low, high] * 6, dtype=torch.float64)[:, None]
        assert accuracy(x, torch.arange(12) % 2, n_folds=3) == 1.0


@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3])
def test_equal_rows_give_the_majority(value):
    x = torch.full((30, 4), value, dtype=torch.float64)
    labels = torch.tensor([1] * 20 + [0] * 10)
    for n_folds in (1, 5):
        found = best_dimension_accuracy(x, labels, n_folds=n_folds)
        assert found["accuracy"].item() == pytest.approx(2 / 3, abs=1e-12)
        assert found["majority"].item() == pytest.approx(2 / 3, abs=1e-12)


def test_errors():
    x, labels = cloud(8, 3), torch.arange(8) % 2
    with pytest.raises(ValueError, match="smallest class, 4 here, got 5; lower n_folds"):
        best_dimension_accuracy(x, labels)
    with pytest.raises(ValueError, match="n_folds must be"):
        best_dimension_accuracy(x, labels, n_folds=0)
    with pytest.raises(ValueError, match="slice a score"):
        best_dimension_accuracy(x, labels + 0.5)
    with pytest.raises(ValueError, match="two classes"):
        best_dimension_accuracy(x, labels * 0)
