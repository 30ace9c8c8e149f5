"""Variants of ClusterPCA against loops, its strength, and random directions.

N embeddings, D width, K clusters, R directions.
"""

import pytest
import torch

from isotrain.transforms.clip import Clip
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.random_directions import RandomDirections
from isotrain.transforms.shrink_clip import ShrinkClip
from tests.clouds import correlated, normal
from tests.clouds import two_blobs as cloud
from tests.transforms.test_cluster_gradients import gradient, layer_of


@pytest.mark.parametrize("kind", [ClusterPCA, Clip, ShrinkClip])
def test_removal_against_the_loop_over_clusters(kind):
    x = torch.cat([correlated(120, 12, seed=1), correlated(80, 12, seed=2) + 20.0])
    layer = layer_of(12, kind=kind, n_components=2)
    stats = layer.estimate(x)
    found, mean = layer.transform(x, stats, are_last=True), x.mean(dim=0)
    for c in range(2):
        rows = x[stats.assignment_N == c]
        own = rows.mean(dim=0)
        value, vector = torch.linalg.eigh(torch.cov(rows.T))
        bulk = value[:-2].sum() / (12 - 2)
        kept = min(1.0, float(bulk.sqrt() / (own - mean).norm()))
        subtracted = own - kept * (own - mean) * (kind is ShrinkClip)
        factor = (bulk / value[-2:]).sqrt().clamp(max=1.0) * (kind is not ClusterPCA)
        y, top = rows - subtracted, vector[:, -2:]
        expected = y - (y @ top) * (1.0 - factor) @ top.T
        torch.testing.assert_close(found[stats.assignment_N == c], expected, rtol=1e-8, atol=1e-8)


# --- strength -------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_the_result_is_on_the_way_to_the_whole_one(strength):
    x, new = cloud(), cloud(20, seed=2)
    layer, whole = layer_of(strength=strength), layer_of()
    for one in (layer, whole):
        one.observe(x)
        one.fit(x)
    for training in (False, True):
        (y, grad), (result, whole_grad) = (
            gradient(one.train(training), new) for one in (layer, whole)
        )
        torch.testing.assert_close(y, new + strength * (result - new))
        upstream = normal(20, 6, seed=1, mean=0.0)
        torch.testing.assert_close(grad, upstream + strength * (whole_grad - upstream))


# --- random directions ---------------------------------------------------------------------------


def n_removed(stats):
    return stats.direction_KDR.square().sum(dim=(1, 2)).round().tolist()


def test_random_directions_follow_the_seed_and_not_the_embeddings():
    found = []
    for seed in (0, 0, 1):
        layer = layer_of(kind=RandomDirections, n_components=2, seed=seed)
        found.append(layer.estimate(cloud()).direction_KDR)
        layer.observe(cloud())
        assert torch.equal(found[-1], layer.estimate(cloud(seed=8)).direction_KDR)
    assert torch.equal(found[0], found[1])
    assert float((found[0] - found[2]).abs().max()) > 0.1
    a, b = found[0]
    assert float((a @ a.T - b @ b.T).abs().max()) > 0.1  # per cluster
    torch.testing.assert_close(a.T @ a, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("rho", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("x", [*map(cloud, (1, 5, 12, 60)), cloud(60, 2) @ normal(2, 6)])
def test_as_many_random_directions_as_principal_ones(x, rho):
    counts = []
    for kind in (ClusterPCA, RandomDirections):
        layer = layer_of(kind=kind, n_components=3, rho=rho, stats="batch")
        counts.append(n_removed(layer.estimate(x)))
        layer(x)
        assert float(layer.counters["directions_removed"]) == sum(counts[-1])
    assert counts[0] == counts[1]


def test_random_directions_are_taken_out_and_frozen():
    x, layer = cloud(), layer_of(kind=RandomDirections, n_components=2)
    layer.fit(x)
    y = layer.eval()(x)
    for c in range(2):
        rows = y[torch.arange(60) % 2 == c]
        v = layer.direction_KDR[(rows @ layer.direction_KDR).abs().amax(dim=(1, 2)).argmin()]
        assert float((rows @ v).abs().max()) < 1e-9
        assert float(rows.square().sum()) > 1.0


def test_a_cluster_keeps_its_random_directions_when_another_falls_back():
    layer = layer_of(kind=RandomDirections, n_components=1)
    layer.observe(cloud())
    both = layer.estimate(cloud())
    one = layer.estimate(torch.cat([cloud()[:40:2], cloud()[1:2]]))  # the second blob has one
    assert one.counters["rows_borrowed"] == 1
    c = int(one.assignment_N[0])
    assert torch.equal(one.direction_KDR[c], both.direction_KDR[c])
