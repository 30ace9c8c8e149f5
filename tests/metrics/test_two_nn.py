"""TwoNN against scikit-dimension and against dimensions that are known."""

import math

import numpy as np
import pytest
import skdim
import torch

from isotrain.metrics.two_nn import two_nn
from tests.metrics.clouds import cloud


def literal(x, discard=0.1):
    """Ratios, empirical distribution and slope, one row at a time."""
    points = x.double().numpy()
    ratios = []
    for q in range(len(points)):
        near = np.sort(np.delete(np.linalg.norm(points - points[q], axis=1), q))[:2]
        if near[0] > 0:
            ratios.append(near[1] / near[0])
    ratios = sorted(ratios)[: min(int(len(ratios) * (1 - discard)), len(ratios) - 1)]
    n = len(ratios)
    n_all = sum(np.sort(np.linalg.norm(points - q, axis=1))[1] > 0 for q in points)
    horizontal = np.log(ratios)
    vertical = np.array([-math.log(1.0 - (i + 1) / n_all) for i in range(n)])
    return np.linalg.lstsq(horizontal[:, None], vertical, rcond=None)[0][0]


@pytest.mark.parametrize(("n", "d"), [(8, 1), (60, 3), (300, 12), (120, 40), (30, 100)])
@pytest.mark.parametrize("discard", [0.0, 0.1, 0.35])
def test_equals_the_literal_fit(n, d, discard):
    x = cloud(n, d, seed=n) * 2.0 + 1.0
    assert two_nn(x, discard).item() == pytest.approx(literal(x, discard), rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(500, 5), (300, 24), (200, 26), (100, 300)])
@pytest.mark.parametrize("discard", [0.1, 0.25])
def test_equals_scikit_dimension(n, d, discard):
    x = cloud(n, d, seed=d)
    expected = skdim.id.TwoNN(discard_fraction=discard).fit(x.numpy()).dimension_
    assert two_nn(x, discard).item() == pytest.approx(expected, rel=1e-6)


def test_duplicates_are_dropped_as_in_scikit_dimension():
    x = cloud(200, 6, seed=1)
    x = torch.cat([x, x[:30], x[:10]])
    with pytest.warns(UserWarning, match="duplicate"):
        expected = skdim.id.TwoNN().fit(x.numpy()).dimension_
    assert two_nn(x).item() == pytest.approx(expected, rel=1e-9)
    assert two_nn(x).item() == pytest.approx(literal(x), rel=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_an_even_density_has_its_dimension(d):
    # Uniform in a cube of D dimensions, turned into a space of 40.
    x = torch.rand(4000, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    frame, _ = torch.linalg.qr(cloud(40, d, seed=2))
    assert two_nn(x @ frame.T).item() == pytest.approx(d, rel=0.06)


def test_ratios_by_hand():
    # Pairs at distance 1, far apart in a row: r1 = 1, r2 = 9 or 10, F = 1/6, 2/6, ...
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]])
    ratios = np.log([9.0, 9.0, 9.0, 9.0, 10.0])  # the outer rows have 10, one is discarded
    heights = -np.log(1.0 - np.arange(1, 6) / 6)
    expected = (ratios @ heights) / (ratios @ ratios)
    assert two_nn(x).item() == pytest.approx(expected, rel=1e-12)


def test_a_lattice_fills_the_space():
    line = torch.arange(6.0)
    lattice = torch.cartesian_prod(line, line, line)
    assert two_nn(lattice).item() == 3.0
    turned, _ = torch.linalg.qr(cloud(30, 30))  # equal distances to rounding
    assert two_nn(turned).item() == 30.0


def test_too_few_rows_to_fit():
    with pytest.raises(ValueError, match=r"0 are left of 40: 40 coincide .* drop repeated ones"):
        two_nn(torch.full((40, 3), 0.1))
    with pytest.raises(ValueError, match="2 are left of 3: 0 coincide"):
        two_nn(cloud(3, 2))
    with pytest.raises(ValueError, match="2 are left of 20"):
        two_nn(cloud(20, 2), discard=0.88)
    assert math.isfinite(two_nn(cloud(4, 2), discard=0.0).item())


def test_errors():
    x = cloud(50, 3)
    for discard in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"\[0, 1\)"):
            two_nn(x, discard)
