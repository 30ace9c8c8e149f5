"""S_inter, S_intra, clusters, LID and maps against slow references and other packages."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, silhouette_score

from isotrain.analysis.clusters.analysis import (
    Sample,
    centred_parts,
    clusters_by_silhouette,
    cosines,
    dimensions,
    measure_layer,
)
from isotrain.analysis.show import principal_map
from isotrain.metrics.s_inter import s_inter
from isotrain.metrics.s_intra import s_intra
from tests.slow_cosines import mean_of_pairs, means_within


def planted(n=300, d=6, k=3, spread=0.3, seed=0):
    """Rows around k centres, and the number of the centre of each; unequal sizes."""
    generator = torch.Generator().manual_seed(seed)
    centre = 4 * torch.randn(k, d, generator=generator, dtype=torch.float64)
    own = torch.multinomial(torch.arange(1.0, k + 1), n, replacement=True, generator=generator)
    noise = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return centre[own] + spread * noise, own


def test_raw_and_centred_cosines_by_loops():
    x, _ = planted(24)
    types = torch.arange(24) % 5
    for rows in (x, x - x.mean(dim=0)):
        (_, intra), values = cosines([(rows, types)], seed=0), means_within(rows, types)
        assert intra.value == pytest.approx(np.mean(values), abs=1e-12)
        assert intra.error == pytest.approx(np.std(values, ddof=1) / 5**0.5, abs=1e-12)
    inter, intra = cosines([(x, torch.arange(24))], seed=0)  # one instance a type: nothing is drawn
    assert inter.value == pytest.approx(mean_of_pairs(x), abs=1e-12)
    assert intra.value is None
    without = [mean_of_pairs(torch.cat([x[:i], x[i + 1 :]])) for i in range(24)]
    jackknife = math.sqrt(23 / 24 * sum((t - np.mean(without)) ** 2 for t in without))
    assert inter.error == pytest.approx(jackknife, rel=1e-9)


def test_clusters_count_alike_and_one_without_an_error_is_left_out_of_it():
    """Published is the unweighted mean; three rows less their mean point apart."""
    generator = torch.Generator().manual_seed(0)
    large = torch.randn(300, 8, generator=generator, dtype=torch.float64) + 1
    small = torch.randn(3, 8, generator=generator, dtype=torch.float64) + 50
    x, own = torch.cat([large, small]), torch.tensor([0] * 300 + [1] * 3)
    types = torch.cat([torch.arange(300) % 20, torch.tensor([0, 0, 0])])
    parts = centred_parts(x, types, own)
    each = [np.mean(means_within(*part)) for part in parts]
    assert each[1] < -0.4
    found = cosines(parts, seed=0)[1]
    assert found.value == pytest.approx(sum(each) / 2, abs=1e-12)
    # The small cluster has one type, so no error over types.
    assert found.error == pytest.approx(cosines(parts[:1], seed=0)[1].error / 2)
    assert cosines(parts[1:], seed=0)[1].error is None


def test_a_layer_is_measured_raw_centred_and_inside_clusters():
    """Each of the three forms against the metric with the `adjust` of that name."""
    x, _ = planted(60)
    types = torch.arange(60) % 7
    x = x.float() + 2
    sample = Sample(x[None].numpy(), types, dict.fromkeys(range(7), "a"), {})
    cluster = 6, 0.1, 60
    (record, *inside), arrays = measure_layer(
        sample._replace(frequency_of=dict.fromkeys(range(7), 3)), 0, 0, cluster, 0
    )
    assert arrays == {}
    assert record["k"] == len(inside) == 3
    for form, adjust in (("", "none"), ("_centred", "centre"), ("_clustered", "cluster")):
        options = {"adjust": adjust, "k_max": 6, "max_rows": 60}
        for metric in (s_inter, s_intra):
            expected = float(metric(x, types, **options)["value"])
            assert record[f"{metric.__name__}{form}"] == pytest.approx(expected, abs=1e-6)
    assert len({round(record[f"s_intra{form}"], 3) for form in ("", "_centred", "_clustered")}) == 3


def test_clusters_are_those_that_were_planted_by_falling_size():
    x, own = planted(400, d=12, k=4, spread=0.8)
    found = clusters_by_silhouette(x, 8, 0.1, 400, seed=0)
    assert found.k == found.best_k == 4
    expected = silhouette_score(x.numpy(), found.assignment_N.numpy())
    assert found.silhouette == pytest.approx(expected, abs=1e-6)
    assert adjusted_rand_score(own.numpy(), found.assignment_N.numpy()) == pytest.approx(1.0)
    sizes = found.assignment_N.bincount()
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


def test_a_cloud_without_clusters_is_one():
    x = torch.randn(500, 40, generator=torch.Generator().manual_seed(0))
    found = clusters_by_silhouette(x, 5, 0.1, 500, seed=0)
    assert found.k == 1
    assert found.assignment_N.unique().tolist() == [0]
    assert found.best_k > 1
    assert 0 < found.silhouette < 0.1
    forced = clusters_by_silhouette(x, 5, -1.0, 500, seed=0)
    expected = silhouette_score(x.numpy(), forced.assignment_N.numpy())
    assert forced.k == found.best_k
    assert found.silhouette == pytest.approx(expected, abs=1e-6)


def test_dimensions_as_the_released_code_computes_them():
    """Squared Euclidean distances, and 1 − cosine, in the formula; the row itself left out.

    The pitfall: these figures are half of what the plain formula gives.
    """
    x, _ = planted(400, 8, spread=1.0)
    found = dimensions(x, 20, None, 0)
    unit = x / x.norm(dim=1, keepdim=True)
    square = (x[:, None] - x[None]).square().sum(dim=2)
    for name, power, distance in (("lid", 2, square), ("lid_cosine_squared", 1, 1 - unit @ unit.T)):
        near = distance.fill_diagonal_(torch.inf).sort(dim=1).values[:, :20]
        own = -1 / (near / near[:, -1:]).log().mean(dim=1)
        assert found[name] == pytest.approx(power * float(own.mean()), rel=1e-6)


def test_dimension_needs_more_rows_than_neighbours():
    found = dimensions(torch.eye(5), 5, None, 0)
    assert found["lid"] is found["lid_cosine_squared"] is found["lid_error"] is None
    assert dimensions(torch.eye(6) + torch.rand(6, 6), 5, None, 0)["lid"] is not None


def test_map_is_that_of_pca_with_signs_fixed():
    x, _ = planted(100)
    points, shares = principal_map(x)
    fitted = PCA(2).fit(x.numpy())
    assert shares.numpy() == pytest.approx(fitted.explained_variance_ratio_, rel=1e-9)
    components = fitted.components_
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], 1)
    expected = fitted.transform(x.numpy()) * np.sign(largest).T
    assert points.numpy() == pytest.approx(expected, abs=1e-9)
