"""LID against the formula row by row, scikit-dimension, and dimensions that are known."""

import math

import numpy as np
import pytest
import skdim
import torch
from hydra.utils import instantiate

from isotrain.metrics.lid import lid, lid_estimate
from tests.metrics.clouds import cloud


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


def test_the_file_of_the_metric_gives_its_error_too(composed):
    x = cloud(150, 4)
    found = instantiate(
        composed("metric=[lid]", "monitor.headline=[lid_value]").metric.lid.function
    )(x)
    assert set(found) == {"value", "standard_error", "n_queries"}
    assert found["value"].item() == lid(x).item()


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


def test_a_sphere_of_the_methods_table():
    x = torch.nn.functional.normalize(cloud(3000, 11, seed=2))
    assert lid(x).item() == pytest.approx(8.72, rel=0.015)
    assert lid(x * 3.0, distance="cosine", squared=True).item() == pytest.approx(4.36, rel=0.015)


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


def test_a_line_in_a_wide_space_has_one_dimension():
    x = torch.rand(1000, 1, generator=torch.Generator().manual_seed(3)).double() @ cloud(1, 300)
    assert lid(x).item() == pytest.approx(1.02, rel=0.05)


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
def test_nothing_but_copies_is_refused(distance):
    with pytest.raises(ValueError, match=r"all of 30 rows .* 5 nearest .*drop repeated rows"):
        lid(torch.full((30, 4), 0.3), n_neighbors=5, distance=distance)
    parallel = cloud(1, 50) * cloud(30, 1, seed=1).abs()
    with pytest.raises(ValueError, match="distance zero"):
        lid(parallel, n_neighbors=5, distance="cosine")


def test_a_zero_row_has_a_finite_cosine_value():
    x = cloud(40, 3, seed=4)
    x[5] = 0.0
    assert math.isfinite(lid(x, n_neighbors=10, distance="cosine").item())


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


def test_harmonic_standard_error_is_that_of_the_spread_too():
    x = cloud(1500, 6, seed=6)
    found = [lid_estimate(x, 15, aggregate="harmonic", max_queries=60, seed=s) for s in range(150)]
    spread = torch.stack([f["value"] for f in found]).std().item()
    mean_error = torch.stack([f["standard_error"] for f in found]).mean().item()
    assert spread == pytest.approx(mean_error, rel=0.2)


def test_the_draw_has_its_own_seed_and_leaves_the_global_one_alone():
    x = cloud(300, 4, seed=7)
    state = torch.get_rng_state()
    values = [lid(x, 20, max_queries=30, seed=seed).item() for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert torch.equal(torch.get_rng_state(), state)
    everything = lid(x, 20).item()
    assert [lid(x, 20, max_queries=k).item() for k in (300, 1000)] == [everything] * 2
    one = lid_estimate(x, 20, max_queries=1)
    assert one["standard_error"].item() == math.inf
    assert math.isfinite(one["value"].item())


def test_errors():
    x = cloud(50, 3)
    with pytest.raises(ValueError, match=r"n_neighbors = 100, got 50; give more rows or lower"):
        lid(x)
    with pytest.raises(ValueError, match="got 50"):
        lid(x, n_neighbors=50)
    assert math.isfinite(lid(x, n_neighbors=49).item())
    with pytest.raises(ValueError, match="at least 2, got 1"):
        lid(x, n_neighbors=1)
    with pytest.raises(ValueError, match="euclidean or cosine, got 'l2'"):
        lid(x, 5, distance="l2")
    with pytest.raises(ValueError, match="mean or harmonic, got 'median'"):
        lid(x, 5, aggregate="median")
    with pytest.raises(ValueError, match="max_queries must be at least 1"):
        lid(x, 5, max_queries=0)
