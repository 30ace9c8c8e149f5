"""Maximum explainable variance against NumPy's singular values and scikit-learn's PCA."""

import numpy as np
import pytest
import torch

from isotrain.metrics.max_explainable_variance import max_explainable_variance
from tests.clouds import floats, islands


def words(n, d, n_words):
    return islands(n, d, n_words, n_islands=0)[:2]


def share(rows, center):
    rows = rows.numpy()
    rows = rows - rows.mean(axis=0) * center
    energy = np.linalg.svd(rows, compute_uv=False) ** 2
    return energy[0] / energy.sum()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("d", [4, 50])  # rows of the words: fewer than d and more
def test_all_rows_are_those_of_the_svd(d, center):
    x, groups = words(60, d, 6)
    groups[-2:] = 99  # two rows: measured uncentred only
    counts = groups.bincount()
    sizes = {name: int(counts[name]) for name in range(100) if counts[name] >= 2 + center}
    expected = [share(x[groups == name], center) for name in sizes]
    found = floats(max_explainable_variance(x, groups, center, n_per_group=None))
    assert found["value"] == pytest.approx(np.mean(expected), abs=1e-13)
    assert found["n_groups"] == len(sizes)
    assert found["standard_error"] == pytest.approx(
        np.std(expected, ddof=1) / len(sizes) ** 0.5, abs=1e-13
    )
    assert found["adjusted"] == pytest.approx(found["value"] - found["baseline"], abs=1e-15)


def test_a_sample_is_within_its_error_of_random_ones():
    x, groups = words(400, 8, 4)
    draw = np.random.default_rng(0)

    def sampled(names):
        values = []
        for name in names:
            places = np.flatnonzero(np.ones(400, bool) if name is None else groups.numpy() == name)
            values.append(share(x[draw.choice(places, 5, replace=False)], False))
        return np.mean(values)

    many = [sampled(range(4)) for _ in range(200)]
    seeds = [max_explainable_variance(x, groups, seed=seed) for seed in range(60)]
    value = np.array([found["value"].item() for found in seeds])
    assert len(set(value.tolist())) == 60
    assert value.mean() == pytest.approx(np.mean(many), abs=4 * np.std(many) / 60**0.5)
    assert value.std() == pytest.approx(np.std(many), rel=0.35)
    baseline = sampled([None] * 2000)
    found = np.array([found["baseline"].item() for found in seeds])
    assert found.mean() == pytest.approx(baseline, abs=0.01)
    assert len(set(found.tolist())) == 60
    assert value.mean() > baseline + 0.05  # so the two cannot be mixed up


@pytest.mark.parametrize("n", [3, 5, 8])
def test_floors(n):
    """Orthogonal rows of one length: 1/n, and 1/(n − 1) centred."""
    groups = torch.arange(4).repeat(n)
    x = torch.eye(4 * n, dtype=torch.float64)
    for center, floor in ((False, 1 / n), (True, 1 / (n - 1))):
        found = floats(max_explainable_variance(x, groups, center, n_per_group=n))
        assert found["value"] == pytest.approx(floor, abs=1e-14)
        assert found["baseline"] == pytest.approx(floor, abs=1e-14)
        assert found["adjusted"] == pytest.approx(0.0, abs=1e-14)


def test_rows_are_drawn_to_one_n_and_small_words_left_out():
    x, groups = words(60, 8, 6)
    counts = groups.bincount()
    for n in (3, 5, 8):
        found = max_explainable_variance(x, groups, n_per_group=n)
        assert found["n_groups"] == int((counts >= n).sum())
    assert floats(max_explainable_variance(x, groups)) == floats(
        max_explainable_variance(x, groups, n_per_group=5)
    )


def test_the_baseline_of_all_rows_weighs_each_n_by_its_words():
    x, _ = words(24, 8, 1)
    groups = torch.tensor([0] * 12 + [1, 2, 3] * 4)
    parts = {n: max_explainable_variance(x, groups, n_per_group=n)["baseline"] for n in (4, 12)}
    found = max_explainable_variance(x, groups, n_per_group=None)
    expected = (3 * parts[4] + parts[12]).item() / 4
    assert found["n_groups"] == 4
    assert found["baseline"].item() == pytest.approx(expected, abs=1e-14)


def test_baseline_sets_are_disjoint_and_bounded():
    x, groups = words(50, 8, 3)
    whole = max_explainable_variance(x, groups, n_per_group=5, n_baseline=10)
    assert floats(max_explainable_variance(x, groups, n_per_group=5)) == floats(whole)
    fewer = max_explainable_variance(x, groups, n_per_group=5, n_baseline=9)
    assert fewer["baseline"] != whole["baseline"]
    assert fewer["value"] == whole["value"]
    # One set of all rows is the cloud itself.
    found = max_explainable_variance(x, groups * 0, n_per_group=50)
    assert found["baseline"].item() == pytest.approx(share(x, False), abs=1e-13)
