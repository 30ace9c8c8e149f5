"""Silhouettes against scikit-learn and the double loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_samples
from torch.utils._python_dispatch import TorchDispatchMode

from isotrain.geometry import clusters as silhouette
from isotrain.geometry.clusters import silhouette_values

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


def labels_of(n, c, seed=0):
    labels = torch.randint(0, c, (n,), generator=torch.Generator().manual_seed(seed))
    labels[:2] = torch.tensor([0, c - 1])
    return labels


def double_loop(x, labels):
    """The definition, row by row, distances from differences."""
    values = []
    for i in range(len(x)):
        distance_N = (x - x[i]).norm(dim=1)
        own = labels == labels[i]
        if own.sum() == 1:
            values.append(0.0)
            continue
        a = float(distance_N[own].sum() / (own.sum() - 1))
        b = min(float(distance_N[labels == c].mean()) for c in labels.unique() if c != labels[i])
        values.append((b - a) / max(a, b) if max(a, b) > 0 else 0.0)
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "d", "c"), [(3, 1, 2), (20, 3, 2), (50, 100, 4), (300, 6, 3), (40, 5, 39), (500, 64, 8)]
)
def test_equals_scikit_learn(n, d, c):
    x, labels = cloud(n, d, seed=n, mean=1.0), labels_of(n, c)
    expected = torch.from_numpy(silhouette_samples(x.numpy(), labels.numpy()))
    torch.testing.assert_close(silhouette_values(x, labels), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("entries", [1, 37, 700])
def test_block_size_changes_nothing(entries, monkeypatch):
    x, labels = cloud(60, 7, seed=1), labels_of(60, 4)
    expected = silhouette_values(x, labels)
    monkeypatch.setattr(silhouette, "BLOCK_ENTRIES", entries)
    torch.testing.assert_close(silhouette_values(x, labels), expected, rtol=0, atol=1e-13)


class Largest(TorchDispatchMode):
    """The most bytes that a tensor made under it has."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.bytes = max(self.bytes, made.nbytes)
        return made


@pytest.mark.parametrize("n_distinct", [2, 9, 100, 512])
def test_near_pairs_take_no_more_than_a_block(n_distinct, monkeypatch):
    n = 512
    place = (torch.arange(n) % (n_distinct + 6)).clamp_max(n_distinct - 1)  # many are the last one
    x, labels = cloud(n_distinct, 8, seed=8)[place], labels_of(n, 3)
    monkeypatch.setattr(silhouette, "BLOCK_ENTRIES", 32 * n)
    with Largest() as largest:
        found = silhouette_values(x, labels)
    assert largest.bytes <= 8 * 32 * n
    torch.testing.assert_close(found, double_loop(x, labels), rtol=0, atol=1e-12)


@given(st.integers(4, 30), st.integers(1, 8), st.integers(0, 10_000))
@light
def test_invariances_and_range(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x, labels = cloud(n, d, seed), labels_of(n, 3, seed)
    rotation, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    value = silhouette_values(x, labels)
    assert float(value.abs().max()) <= 1.0
    for moved in (x @ rotation, x + 100.0, x * 1e-3, x * 1e200, x * 1e-200):
        torch.testing.assert_close(silhouette_values(moved, labels), value, rtol=0, atol=1e-11)
    order = torch.randperm(n, generator=generator)
    permuted = silhouette_values(x[order], labels[order])
    torch.testing.assert_close(permuted, value[order], rtol=0, atol=1e-12)
    renamed = silhouette_values(x, 7 - 2 * labels)
    torch.testing.assert_close(renamed, value, rtol=0, atol=1e-12)


def test_tight_clusters_far_apart_keep_their_digits():
    # Two classes 1e-6 wide, mixed, at one end; a third 1e3 away: products lose such distances.
    near, far = cloud(30, 6, seed=2) * 1e-6, cloud(10, 6, seed=3) * 1e-6 + 1e3
    x = torch.cat([near, far])
    labels = torch.cat([torch.arange(30) % 2, torch.full((10,), 2)])
    x = x.float().double()  # the rows themselves are exact; differences of the far ones are not 0
    torch.testing.assert_close(
        silhouette_values(x, labels), double_loop(x, labels), rtol=0, atol=1e-8
    )


def test_mean_of_norm_16000():
    x, labels = cloud(80, 16, seed=4), labels_of(80, 3)
    far = silhouette_values(x + 4_000.0, labels)
    torch.testing.assert_close(far, silhouette_values(x, labels), rtol=0, atol=1e-10)


def test_duplicates_and_equal_rows():
    x = cloud(6, 3, seed=5).repeat(5, 1)
    by_point = torch.arange(6).repeat(5)
    assert silhouette_values(x, by_point).tolist() == [1.0] * 30  # no distance inside, some outside
    mixed = labels_of(30, 4)
    torch.testing.assert_close(
        silhouette_values(x, mixed), double_loop(x, mixed), rtol=0, atol=1e-12
    )
    equal = torch.full((9, 4), -16_000.3, dtype=torch.float64)
    assert silhouette_values(equal, torch.arange(9) % 2).tolist() == [0.0] * 9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_precisions_are_promoted(dtype):
    x, labels = cloud(25, 6, seed=6).to(dtype), labels_of(25, 3)
    found = silhouette_values(x, labels)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, double_loop(x.double(), labels), rtol=0, atol=1e-12)


def test_errors():
    x = cloud(5, 2)
    with pytest.raises(ValueError, match=r"2 to N − 1 = 4 clusters, got 5"):
        silhouette_values(x, torch.arange(5))
    with pytest.raises(ValueError, match="two classes"):
        silhouette_values(x, torch.zeros(5))
    with pytest.raises(ValueError, match=r"\[N\] = \[5\]"):
        silhouette_values(x, torch.arange(4))
