"""LID and TwoNN against their formulas, scikit-dimension, and dimensions that are known."""

import math

import numpy as np
import pytest
import skdim
import torch

from isotrain.metrics.lid import lid, lid_estimate
from isotrain.metrics.two_nn import two_nn
from tests.clouds import cloud


def row_by_row(x, m, distance="euclidean", squared=False):
    """The published formula, with the published distances."""
    points = x.double().numpy()
    if distance == "cosine":
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    values = []
    for q in range(len(points)):
        r = np.delete(((points - points[q]) ** 2).sum(axis=1), q)
        if distance == "cosine" and squared:
            r = 1.0 - np.delete(points @ points[q], q)
        elif not squared:
            r = np.sqrt(r)
        r = np.sort(r)[:m]
        values.append(-1.0 / np.log(r / r[-1]).mean())
    return np.array(values)


@pytest.mark.parametrize(("n", "d", "m"), [(60, 4, 2), (150, 9, 20), (101, 3, 100), (40, 90, 12)])
@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("squared", [False, True])
def test_equals_the_formula_row_by_row(n, d, m, distance, squared):
    x = cloud(n, d, seed=n) + 0.5
    values = row_by_row(x, m, distance, squared)
    options = {"n_neighbors": m, "distance": distance, "squared": squared}
    found = lid_estimate(x, **options)
    assert found["value"].item() == pytest.approx(values.mean(), rel=1e-9)
    error = values.std(ddof=1) / math.sqrt(n)
    assert found["standard_error"].item() == pytest.approx(error, rel=1e-8)
    assert found["n_queries"].item() == n
    harmonic = lid(x, aggregate="harmonic", **options).item()
    assert harmonic == pytest.approx(1.0 / (1.0 / values).mean(), rel=1e-9)


@pytest.mark.parametrize("m", [10, 100])
@pytest.mark.parametrize(("ours", "theirs"), [("harmonic", "mle"), ("mean", "mean")])
def test_equals_scikit_dimension(m, ours, theirs):
    x = cloud(400, 12, seed=1)
    expected = skdim.id.MLE().fit(x.numpy(), n_neighbors=m, comb=theirs).dimension_
    found = lid(x, n_neighbors=m, aggregate=ours).item()
    assert found * (m - 1) / m == pytest.approx(expected, rel=1e-9)  # 1/(m − 1) over there


@pytest.mark.parametrize(("d", "plain"), [(5, 5.01), (10, 8.79), (20, 14.29)])
def test_gaussian_clouds_of_the_methods_table(d, plain):
    values = [lid(cloud(3000, d, seed)).item() for seed in range(3)]
    assert np.mean(values) == pytest.approx(plain, rel=0.015)
    squared = lid(cloud(3000, d), squared=True).item()
    assert squared == pytest.approx(values[0] / 2.0, rel=1e-12)


@pytest.mark.parametrize("m", [5, 20, 100])
def test_an_even_density_gives_the_gamma_law(m):
    # On a circle r_i/r_m of one row are uniform: the mean is m/(m − 2), harmonic m/(m − 1).
    angle = (
        2.0
        * math.pi
        * torch.rand(4000, generator=torch.Generator().manual_seed(m), dtype=torch.float64)
    )
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    assert lid(x, m).item() == pytest.approx(m / (m - 2), rel=0.03)
    assert lid(x, m, aggregate="harmonic").item() == pytest.approx(m / (m - 1), rel=0.02)


def test_evenly_spaced_points_by_hand():
    # Two neighbours at equal distance inside (infinite, so D = 1); at the ends r = 1, 2.
    x = torch.arange(10.0)[:, None]
    expected = (8 * 1.0 + 2 * 2.0 / math.log(2.0)) / 10
    assert lid(x, n_neighbors=2).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e5])
def test_equidistant_rows_fill_the_space(scale):
    assert lid(torch.eye(30).double() * scale + 7.0, n_neighbors=10).item() == pytest.approx(30.0)
    turned, _ = torch.linalg.qr(cloud(30, 30))
    assert lid(turned * scale, n_neighbors=10).item() == pytest.approx(30.0)  # to rounding
    assert lid(torch.eye(30), n_neighbors=10, squared=True).item() == pytest.approx(15.0)


def test_a_duplicate_counts_with_the_floor():
    x = torch.tensor([[0.0], [0.0], [1.0]])
    duplicated = -2.0 / math.log(1e-4)
    assert lid(x, n_neighbors=2).item() == pytest.approx((2 * duplicated + 1.0) / 3, rel=1e-12)
    assert lid(x * 1e-20, n_neighbors=2).item() == lid(x, n_neighbors=2).item()


def test_rows_among_their_own_copies_are_left_out_and_counted():
    x = torch.cat([torch.zeros(6, 3), cloud(50, 3).float() + 9.0])
    found = lid_estimate(x, n_neighbors=5)
    assert found["n_queries"].item() == 50
    assert found["value"].item() == pytest.approx(row_by_row(x[6:], 5).mean(), rel=1e-9)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_nothing_but_copies_is_rejected(distance):
    with pytest.raises(ValueError, match=r"all of 30 rows .* 5 nearest .*drop repeated rows"):
        lid(torch.full((30, 4), 0.3), n_neighbors=5, distance=distance)
    parallel = cloud(1, 50) * cloud(30, 1, seed=1).abs()
    with pytest.raises(ValueError, match="distance zero"):
        lid(parallel, n_neighbors=5, distance="cosine")


def test_sampled_queries_search_all_rows_and_their_spread_is_the_standard_error():
    x = cloud(1500, 6, seed=5) * torch.linspace(0.2, 2.0, 6)
    pointwise = row_by_row(x, 15)
    found = [lid_estimate(x, 15, max_queries=60, seed=seed) for seed in range(150)]
    values = torch.stack([f["value"] for f in found])
    errors = torch.stack([f["standard_error"] for f in found])
    assert all(f["n_queries"].item() == 60 for f in found)
    centre = values.std().item() / math.sqrt(150)
    assert values.mean().item() == pytest.approx(pointwise.mean(), abs=3.5 * centre)
    assert values.std().item() == pytest.approx(errors.mean().item(), rel=0.2)
    covered = ((values - pointwise.mean()).abs() < 1.96 * errors).double().mean().item()
    assert 0.88 <= covered <= 0.99


def test_the_draw_has_its_own_seed():
    x = cloud(300, 4, seed=7)
    values = [lid(x, 20, max_queries=30, seed=seed).item() for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert [lid(x, 20, max_queries=k).item() for k in (300, 1000)] == [lid(x, 20).item()] * 2
    assert lid_estimate(x, 20, max_queries=1)["standard_error"].item() == math.inf


@pytest.mark.parametrize(("n", "d"), [(500, 5), (300, 24), (200, 26), (100, 300)])
@pytest.mark.parametrize("discard", [0.1, 0.25])
def test_two_nn_equals_scikit_dimension(n, d, discard):
    x = cloud(n, d, seed=d)
    expected = skdim.id.TwoNN(discard_fraction=discard).fit(x.numpy()).dimension_
    assert two_nn(x, discard).item() == pytest.approx(expected, rel=1e-6)


def test_duplicates_are_dropped_as_in_scikit_dimension():
    x = cloud(200, 6, seed=1)
    x = torch.cat([x, x[:30], x[:10]])
    with pytest.warns(UserWarning, match="duplicate"):
        expected = skdim.id.TwoNN().fit(x.numpy()).dimension_
    assert two_nn(x).item() == pytest.approx(expected, rel=1e-9)


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
