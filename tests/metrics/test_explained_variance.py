"""Explained variance against scikit-learn's PCA and NumPy's singular values."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from isotrain.metrics.explained_variance import explained_variance

SHAPES = [(3, 3), (5, 4), (16, 64), (64, 16), (32, 33), (500, 4)]


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.1, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_equals_scikit_learn(n, d):
    x = cloud(n, d, mean=2.0)
    ratios = np.cumsum(PCA(svd_solver="full").fit(x.numpy()).explained_variance_ratio_)
    found = explained_variance(x)
    assert list(found) == ["1", "2", "3"]
    for k, value in found.items():
        assert value.dtype == torch.float64
        assert value.ndim == 0
        assert value.item() == pytest.approx(ratios[int(k) - 1], abs=1e-12)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_about_the_origin(n, d):
    x = cloud(n, d, seed=1, mean=0.5)
    value = np.linalg.svd(x.numpy(), compute_uv=False) ** 2
    found = explained_variance(x, [2], center=False)["2"].item()
    assert found == pytest.approx(value[:2].sum() / value.sum(), abs=1e-12)


def test_sums_rise_to_one_and_keys_are_as_asked():
    x = cloud(40, 6, seed=2)
    found = explained_variance(x, (5, 1, 6, 100))
    assert list(found) == ["5", "1", "6", "100"]
    everything = [v.item() for v in explained_variance(x, range(1, 7)).values()]
    steps = np.diff([0.0, *everything])
    assert bool((steps > 0).all())
    assert bool((np.diff(steps) <= 1e-15).all())  # eigenvalues fall
    assert everything[-1] == pytest.approx(1.0, abs=1e-14)
    assert found["100"].item() == pytest.approx(1.0, abs=1e-14)


def test_few_rows_have_a_floor():
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    assert 0.25 <= explained_variance(x)["1"].item() < 0.4
    assert explained_variance(x, [4])["4"].item() == pytest.approx(1.0, abs=1e-14)


def test_even_directions_and_no_scatter():
    even = torch.cat([torch.eye(4), -torch.eye(4)]) - 3.0
    assert [v.item() for v in explained_variance(even).values()] == pytest.approx([0.25, 0.5, 0.75])
    constant = torch.full((8, 3), -16_000.3, dtype=torch.float64)
    assert [v.item() for v in explained_variance(constant).values()] == [0.0, 0.0, 0.0]
    origin = explained_variance(constant, center=False)
    assert [v.item() for v in origin.values()] == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "d"), [(4, 6), (6, 4)])
def test_gradient(n, d, center):
    x = cloud(n, d, seed=3, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda rows: tuple(explained_variance(rows, [1, 2], center=center).values()), x
    )


@pytest.mark.parametrize("n_directions", [[], [0], [1, -2]])
def test_numbers_below_one_are_refused(n_directions):
    with pytest.raises(ValueError, match="at least 1"):
        explained_variance(cloud(5, 3), n_directions)
