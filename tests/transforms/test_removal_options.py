"""Options of ClusterPCA: centre, clipping, warm-up, random directions, gradients, and a queue.

N embeddings, D width, K clusters, R directions.
"""

from contextlib import nullcontext

import pytest
import torch

from isotrain.geometry.cluster_pca import apply_cluster_pca
from isotrain.geometry.cluster_removal import Removal
from isotrain.geometry.levels import rms_distance
from isotrain.transforms.cluster_pca import ClusterPCA
from tests.clouds import correlated, normal, seeded
from tests.clouds import two_blobs as cloud
from tests.cluster_parts import fit_with, layer_with
from tests.transforms.test_cluster_gradients import gradient, layer_of


@pytest.mark.parametrize("centre", ["none", "global", "cluster", "shrink"])
@pytest.mark.parametrize("removal", ["project", "clip", "amplify"])
def test_centre_and_removal_against_the_loop_over_clusters(centre, removal):
    x = torch.cat([correlated(120, 12, seed=1), correlated(80, 12, seed=2) + 20.0])
    stats = fit_with(x, 2, 2, centre=centre, removal=removal, generator=seeded(0))
    found, mean = apply_cluster_pca(x, stats, stats.assignment_N), x.mean(dim=0)
    for c in range(2):
        rows = x[stats.assignment_N == c]
        own = rows.mean(dim=0)
        value, vector = torch.linalg.eigh(torch.cov(rows.T))
        bulk = value[:-2].sum() / (12 - 2)
        kept = min(1.0, float(bulk.sqrt() / (own - mean).norm()))
        subtracted = {
            "none": torch.zeros_like(mean),
            "global": mean,
            "cluster": own,
            "shrink": own - kept * (own - mean),
        }[centre]
        factor = (bulk / value[-2:]).sqrt().clamp(max=1.0) * (removal == "clip")
        factor = factor + 3.0 * (removal == "amplify")  # the default gain
        y, top = rows - subtracted, vector[:, -2:]
        expected = y - (y @ top) * (1.0 - factor) @ top.T
        torch.testing.assert_close(found[stats.assignment_N == c], expected, rtol=1e-8, atol=1e-8)


# --- strength, warm-up, scale -----------------------------------------------------------------


def test_the_strength_rises_with_the_steps_of_training_alone():
    layer, x = layer_of(strength=0.8, warmup_steps=4), cloud()
    found = [layer.strength_now()]
    for _ in range(6):
        layer(x), layer(x)  # several views are one step
        layer.observe(x)
        found.append(layer.strength_now())
        layer.eval()
        layer.observe(x)
        layer.fit()
        layer.train()
    assert found == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


@pytest.mark.parametrize("strength", [0.3, 1.0])
@pytest.mark.parametrize("n_steps", [0, 1, 4, 9])
def test_the_result_is_on_the_way_to_the_whole_one(strength, n_steps):
    x, new = cloud(), cloud(20, seed=2)
    layer, other = (layer_of(strength=strength, warmup_steps=4) for _ in range(2))
    whole = layer_of()
    for _ in range(n_steps):
        layer.observe(x), whole.observe(x)
    layer.fit(x), whole.fit(x)
    share = strength * min(1.0, n_steps / 4)
    for training in (False, True):
        (y, grad), (result, whole_grad) = (
            gradient(one.train(training), new) for one in (layer, whole)
        )
        torch.testing.assert_close(y, new + share * (result - new))
        upstream = normal(20, 6, seed=1, mean=0.0)
        torch.testing.assert_close(grad, upstream + share * (whole_grad - upstream))
    other.load_state_dict(layer.state_dict())
    assert int(other.n_steps) == n_steps
    assert torch.equal(other.eval()(new), layer.eval()(new))


@pytest.mark.parametrize("options", [{"removal": "clip"}, {"n_clipped": 2}, {}])
def test_the_scale_is_kept_where_asked_as_a_constant(options):
    x = cloud()
    plain, kept = (layer_of(stats="batch", keep_scale=k, **options) for k in (False, True))
    (y, grad), (scaled, scaled_grad) = gradient(plain, x), gradient(kept, x)
    factor = float(rms_distance(x) / rms_distance(y))
    assert factor > 1.1
    torch.testing.assert_close(scaled, factor * y)
    torch.testing.assert_close(scaled_grad, factor * grad)
    kept.fit(x)
    torch.testing.assert_close(kept.eval()(x), scaled, rtol=1e-4, atol=1e-4)


# --- directions=random ------------------------------------------------------------------------


def n_removed(stats):
    return stats.direction_KDR.square().sum(dim=(1, 2)).round().tolist()


def test_random_directions_follow_the_seed_and_not_the_embeddings():
    found = []
    for seed in (0, 0, 1):
        layer = layer_of(directions="random", n_components=2, seed=seed)
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
    for directions in ("principal", "random"):
        layer = layer_of(directions=directions, n_components=3, rho=rho, stats="batch")
        counts.append(n_removed(layer.estimate(x)))
        layer(x)
        assert float(layer.counters["directions_removed"]) == sum(counts[-1])
    assert counts[0] == counts[1]


def test_random_directions_are_taken_out_and_frozen():
    x, layer = cloud(), layer_of(directions="random", n_components=2)
    layer.fit(x)
    y = layer.eval()(x)
    for c in range(2):
        rows = y[torch.arange(60) % 2 == c]
        v = layer.direction_KDR[(rows @ layer.direction_KDR).abs().amax(dim=(1, 2)).argmin()]
        assert float((rows @ v).abs().max()) < 1e-9
        assert float(rows.square().sum()) > 1.0


def test_a_cluster_keeps_its_random_directions_when_another_falls_back():
    layer = layer_of(directions="random", n_components=1)
    layer.observe(cloud())
    both = layer.estimate(cloud())
    one = layer.estimate(torch.cat([cloud()[:40:2], cloud()[1:2]]))  # the second blob has one
    assert one.counters["rows_borrowed"] == 1
    c = int(one.assignment_N[0])
    assert torch.equal(one.direction_KDR[c], both.direction_KDR[c])


# --- options without effect -------------------------------------------------------------------

ONE, CENTRED = {"n_clusters": 1, "n_components": 2}, {"n_clusters": 2, "n_components": 0}


@pytest.mark.parametrize(
    ("shape", "idle", "warned"),
    [
        (ONE, {"assign": "spherical"}, "assign.method"),
        (ONE, {"softness": 0.5}, "assign.softness"),
        (ONE, {"n_iterations": 9}, "assign.n_iterations"),
        (ONE, {"assign": "gmm"}, None),  # gmm_pca with one cluster
        (CENTRED, {"rho": 0.5}, "removal.rho"),
        (CENTRED, {"removal": "clip"}, None),  # clip without directions
    ],
)
def test_what_changes_nothing_is_warned_of_unless_a_preset_has_it(shape, idle, warned):
    warns = pytest.warns(UserWarning, match=f"^{warned}: without effect")
    with warns if warned else nullcontext():
        layer = layer_of(**shape, **idle)
    assert torch.equal(layer(cloud()), layer_of(**shape)(cloud()))
    layer_of(n_clusters=2, n_components=1, **idle)  # has something to act on, and is silent


def test_gradients_of_what_is_not_there_are_warned_of():
    for options in ({"directions": "random"}, {"n_components": 0}):
        with pytest.warns(UserWarning, match=r"removal\.grad.*: without effect in this layer"):
            layer_with(6, grad="full", **options)
    with pytest.warns(UserWarning, match=r"removal\.grad: without effect in this layer"):
        layer_with(6, grad="levels")
    with pytest.warns(UserWarning, match=r"removal\.level: without effect in this layer"):
        ClusterPCA(6, removal=Removal(level=2.0))
    for option in ({"removal": "clip"}, {"centre": "shrink"}, {"n_clipped": 1}, {"protect": True}):
        assert layer_with(6, grad="levels", **option).removal.grad == "levels"
