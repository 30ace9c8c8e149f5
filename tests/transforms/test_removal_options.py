"""Options of ClusterPCA: removal, strength and random directions.

N embeddings, D width, K clusters, R directions.
"""

import pytest
import torch

from isotrain.geometry.cluster_pca import apply_cluster_pca
from tests.clouds import correlated, normal, seeded
from tests.clouds import two_blobs as cloud
from tests.cluster_parts import fit_with
from tests.transforms.test_cluster_gradients import gradient, layer_of


@pytest.mark.parametrize("removal", ["project", "clip", "shrink_clip", "amplify"])
def test_removal_against_the_loop_over_clusters(removal):
    x = torch.cat([correlated(120, 12, seed=1), correlated(80, 12, seed=2) + 20.0])
    stats = fit_with(x, 2, 2, removal=removal, generator=seeded(0))
    found, mean = apply_cluster_pca(x, stats, stats.assignment_N), x.mean(dim=0)
    for c in range(2):
        rows = x[stats.assignment_N == c]
        own = rows.mean(dim=0)
        value, vector = torch.linalg.eigh(torch.cov(rows.T))
        bulk = value[:-2].sum() / (12 - 2)
        kept = min(1.0, float(bulk.sqrt() / (own - mean).norm()))
        subtracted = own - kept * (own - mean) * (removal == "shrink_clip")
        factor = (bulk / value[-2:]).sqrt().clamp(max=1.0) * removal.endswith("clip")
        factor = factor + 3.0 * (removal == "amplify")
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


# --- removal=random ---------------------------------------------------------------------------


def n_removed(stats):
    return stats.direction_KDR.square().sum(dim=(1, 2)).round().tolist()


def test_random_directions_follow_the_seed_and_not_the_embeddings():
    found = []
    for seed in (0, 0, 1):
        layer = layer_of(removal="random", n_components=2, seed=seed)
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
    for removal in ("project", "random"):
        layer = layer_of(removal=removal, n_components=3, rho=rho, stats="batch")
        counts.append(n_removed(layer.estimate(x)))
        layer(x)
        assert float(layer.counters["directions_removed"]) == sum(counts[-1])
    assert counts[0] == counts[1]


def test_random_directions_are_taken_out_and_frozen():
    x, layer = cloud(), layer_of(removal="random", n_components=2)
    layer.fit(x)
    y = layer.eval()(x)
    for c in range(2):
        rows = y[torch.arange(60) % 2 == c]
        v = layer.direction_KDR[(rows @ layer.direction_KDR).abs().amax(dim=(1, 2)).argmin()]
        assert float((rows @ v).abs().max()) < 1e-9
        assert float(rows.square().sum()) > 1.0


def test_a_cluster_keeps_its_random_directions_when_another_falls_back():
    layer = layer_of(removal="random", n_components=1)
    layer.observe(cloud())
    both = layer.estimate(cloud())
    one = layer.estimate(torch.cat([cloud()[:40:2], cloud()[1:2]]))  # the second blob has one
    assert one.counters["rows_borrowed"] == 1
    c = int(one.assignment_N[0])
    assert torch.equal(one.direction_KDR[c], both.direction_KDR[c])
