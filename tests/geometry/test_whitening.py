"""Inverse roots of covariances against NumPy, both sides of the eigenproblem, the iteration.

G groups, S dimensions of a group, N rows, D width.
"""

from functools import partial

import numpy as np
import pytest
import torch

from isotrain.geometry.whitening import (
    apply_whitening,
    inverse_root,
    newton_inverse_root,
    principal_root,
    whitening_map,
)
from tests.clouds import correlated as cloud

SHAPES = [(2, 3), (5, 5), (6, 5), (9, 32), (200, 12)]


def centred(n, d, seed=0):
    x = cloud(n, d, seed)
    return x - x.mean(dim=0)


def numpy_root(x, floor):
    """(C + floor)^−1/2 by the whole eigenproblem; with floor 0 that of the pseudo-inverse."""
    value, vector = np.linalg.eigh(np.cov(x.numpy(), rowvar=False) + floor * np.eye(x.shape[1]))
    real = value > 1e-12 * value.max()
    return torch.from_numpy((vector * np.where(real, abs(value), np.inf) ** -0.5) @ vector.T)


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("floor", [0.0, 0.01, 1.0])
def test_inverse_root_equals_numpy(n, d, floor):
    x = centred(n, d)
    found = inverse_root(x[None], torch.tensor(floor, dtype=torch.float64))[0]
    torch.testing.assert_close(found, numpy_root(x, floor), atol=1e-8, rtol=1e-8)


def test_the_iteration_stays_at_its_limit_in_float32():
    """The plain recursion of the published code diverges there (errata of the methods)."""
    x, floor = centred(200, 48)[None].float(), torch.tensor(0.01)
    limit = newton_inverse_root(x, floor, 25)
    later = newton_inverse_root(x, floor, 200)
    assert float((later - limit).abs().max() / limit.abs().max()) < 1e-5


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_principal_root_has_numpys_directions_with_a_positive_largest_entry(n, d):
    x, floor = centred(n, d), torch.tensor(0.2, dtype=torch.float64)
    rank = min(n - 1, d)
    found = principal_root(x[None], floor, d)[0]
    value, vector = np.linalg.eigh(np.cov(x.numpy(), rowvar=False))
    vector = vector[:, ::-1][:, :rank].copy()
    vector *= np.sign(vector[abs(vector).argmax(axis=0), np.arange(rank)])
    expected = torch.from_numpy(vector * (value[::-1][:rank] + 0.2) ** -0.5)
    torch.testing.assert_close(found[:, :rank], expected, atol=1e-8, rtol=0)
    assert not found[:, rank:].any()
    leading = principal_root(x[None], floor, 1)[0]
    torch.testing.assert_close(leading[:, 0], found[:, 0])
    assert leading.shape == (d, d)
    assert not leading[:, 1:].any()


@pytest.mark.parametrize(("n", "d"), [(2, 3), (4, 9)])
def test_full_whitening_of_fewer_embeddings_than_dimensions_has_no_infinite_factor(n, d):
    x = cloud(n, d)
    root = partial(principal_root, n_components=d)
    stats = whitening_map(x, 0.0, False, root)
    assert not stats.matrix_DD[:, n - 1 :].any()  # past the rank; also no NaN, which would be true
    y = apply_whitening(x, stats)
    identity = torch.eye(n - 1, dtype=torch.float64)
    torch.testing.assert_close(y.T[: n - 1] @ y[:, : n - 1] / (n - 1), identity)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e30])
def test_a_map_of_tiny_and_huge_rows_keeps_its_scale(scale):
    x = cloud(40, 6).float()
    found = whitening_map(x * scale, 0.1, True, inverse_root)
    expected = whitening_map(x, 0.1, True, inverse_root)
    torch.testing.assert_close(found.centre_D / scale, expected.centre_D)
    torch.testing.assert_close(found.matrix_DD, expected.matrix_DD, atol=1e-5, rtol=1e-5)


def test_a_group_without_variance_stays_finite():
    x = cloud(30, 6)
    x[:, :3] = 7.0
    for root in (inverse_root, lambda x, floor: newton_inverse_root(x, floor, 20)):
        found = whitening_map(x, 0.1, True, root, group_size=3)
        assert bool(torch.isfinite(found.matrix_DD).all())
        y = apply_whitening(x, found)
        torch.testing.assert_close(y[:, :3], torch.zeros(30, 3).double())
    found = whitening_map(x, 0.0, True, inverse_root, 3)
    assert bool(torch.isfinite(found.matrix_DD).all())
