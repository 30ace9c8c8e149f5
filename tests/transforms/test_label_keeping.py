"""What the layer does to a label that sits on the dominant direction: two classes, far apart."""

from __future__ import annotations

import math

import pytest
import torch

from isotrain.geometry.cluster_pca import apply_cluster_pca
from isotrain.geometry.levels import rms_distance
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.linear_probe_accuracy import linear_probe_accuracy
from isotrain.metrics.partition import partition
from tests.cluster_parts import fit_with, layer_with

N, D, RADIUS, RMS = 2000, 768, 8.0, 15.0


@pytest.fixture(scope="module")
def two_classes():
    generator = torch.Generator().manual_seed(0)
    axis_D = torch.nn.functional.normalize(torch.randn(D, generator=generator), dim=0)
    labels_N = torch.arange(N) % 2
    noise_ND = torch.randn(N, D, generator=generator) * RMS / math.sqrt(D)
    return noise_ND + RADIUS * (2.0 * labels_N[:, None] - 1.0) * axis_D, labels_N


def measured(x_ND, labels_N):
    probe = linear_probe_accuracy(x_ND, labels_N)["accuracy"].item()
    return probe, partition(x_ND).item(), isoscore(x_ND).item()


def of_layer(x_ND, **options):
    layer = layer_with(D, stats="batch", rho=0.25, **options).train()
    return layer(x_ND)


def test_the_published_layer_deletes_the_label(two_classes):
    x, labels = two_classes
    probe, ln_i, score = measured(x, labels)
    assert probe == 1.0
    assert ln_i < -7.0
    assert score < 0.05
    for k in (1, 2, 8):
        after = measured(of_layer(x, n_clusters=k, n_components=1), labels)
        assert after[0] < 0.6
        assert after[1] > -1.0
        assert after[2] > 0.7


def test_clipping_keeps_it_at_the_same_isotropy(two_classes):
    x, labels = two_classes
    projected = measured(of_layer(x, n_clusters=1, n_components=1), labels)
    clipped = measured(of_layer(x, n_clusters=1, n_components=1, removal="clip"), labels)
    assert clipped[0] > 1.0 - 0.005
    assert clipped[1] == pytest.approx(projected[1], abs=0.2)
    assert clipped[2] == pytest.approx(projected[2], abs=0.01)


@pytest.mark.parametrize("k", [2, 8])
def test_clipping_cannot_save_what_cluster_centring_deletes(two_classes, k):
    x, labels = two_classes
    assert measured(of_layer(x, n_clusters=k, n_components=1, removal="clip"), labels)[0] < 0.6
    shrunk = measured(of_layer(x, n_clusters=k, n_components=1, centre="shrink"), labels)
    assert 0.6 < shrunk[0] < 0.95  # a cut offset beside uncut noise: overlap


@pytest.mark.parametrize("k", [1, 2, 8])
@pytest.mark.parametrize("way", ["n_clipped", "protect"])
def test_what_is_set_aside_keeps_the_label_for_any_number_of_clusters(two_classes, k, way):
    x, labels = two_classes
    layer = layer_with(
        D,
        n_clusters=k,
        n_components=1,
        n_clipped=int(way == "n_clipped"),
        protect=way == "protect",
        stats="batch",
    )
    y = layer(x, labels) if way == "protect" else layer(x)
    probe, ln_i, score = measured(y, labels)
    assert probe > 1.0 - 0.005
    assert ln_i > -1.0
    assert score > 0.7


def cloud(n=200, d=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(4.0, 0.5, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + 3.0


def test_spared_directions_come_back_at_the_bulk_level_and_can_be_undone():
    x = cloud()
    stats = fit_with(x, 1, 0, n_clipped=3, centre="none")
    y = apply_cluster_pca(x, stats)
    value, vector = torch.linalg.eigh(torch.cov(x.T))
    bulk = value[:-3].sum() / (12 - 3)
    factor = torch.ones_like(value)
    factor[-3:] = (bulk / value[-3:]).sqrt()
    mean = x.mean(dim=0)
    expected = (x - mean) @ (vector * factor) @ vector.T + mean
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    back = apply_cluster_pca(y, stats._replace(kept_J=1.0 / stats.kept_J))
    torch.testing.assert_close(back, x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("x", [torch.ones(5, 4), torch.randn(1, 4), torch.zeros(3, 4)])
def test_a_cloud_without_scatter_passes(x):
    stats = fit_with(x, 1, 0, n_clipped=2, labels_N=torch.arange(len(x)) % 2)
    assert torch.equal(apply_cluster_pca(x, stats), x)


def test_setting_aside_deletes_nothing_so_no_cap_limits_it():
    x = cloud(4, 12)  # rank 3
    stats = fit_with(x, 1, 0, n_clipped=8, rho=0.01)
    assert int(stats.spared_DJ.square().sum().round()) == 3
    torch.testing.assert_close(apply_cluster_pca(x, stats), x)  # nothing else varies


def test_no_removal_touches_what_is_spared():
    x = torch.cat([cloud(120, seed=1), cloud(80, seed=2) + 20.0])
    generator = torch.Generator().manual_seed(0)
    stats = fit_with(x, 3, 2, n_clipped=2, generator=generator)
    y = apply_cluster_pca(x, stats)
    spared = (x - x.mean(dim=0)) @ stats.spared_DJ * stats.kept_J
    torch.testing.assert_close((y @ stats.spared_DJ), spared, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        stats.direction_KDR.mT @ stats.spared_DJ, torch.zeros(3, 2, 2).double(), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("centre", ["none", "global", "cluster", "shrink"])
@pytest.mark.parametrize("removal", ["project", "clip"])
def test_centre_and_removal_against_the_loop_over_clusters(centre, removal):
    x = torch.cat([cloud(120, seed=1), cloud(80, seed=2) + 20.0])
    generator = torch.Generator().manual_seed(0)
    stats = fit_with(x, 2, 2, centre=centre, removal=removal, generator=generator)
    found = apply_cluster_pca(x, stats, stats.assignment_N)
    mean = x.mean(dim=0)
    for c in range(2):
        rows = x[stats.assignment_N == c]
        own = rows.mean(dim=0)
        value, vector = torch.linalg.eigh(torch.cov(rows.T))
        bulk = value[:-2].sum() / (12 - 2)
        offset = own - mean
        kept = min(1.0, float(bulk.sqrt() / offset.norm()))
        subtracted = {
            "none": torch.zeros_like(mean),
            "global": mean,
            "cluster": own,
            "shrink": own - kept * offset,
        }[centre]
        factor = torch.zeros(2, dtype=x.dtype)
        if removal == "clip":
            factor = (bulk / value[-2:]).sqrt().clamp(max=1.0)
        y = rows - subtracted
        top = vector[:, -2:]
        expected = y - (y @ top) * (1.0 - factor) @ top.T
        torch.testing.assert_close(found[stats.assignment_N == c], expected, rtol=1e-8, atol=1e-8)


def test_strength_is_the_way_from_the_row_to_the_result():
    x = cloud().float()
    whole = layer_with(12, n_clusters=2, n_components=1, n_clipped=1, stats="batch")
    half = layer_with(12, n_clusters=2, n_components=1, n_clipped=1, stats="batch", strength=0.5)
    none = layer_with(12, n_clusters=2, n_components=1, stats="batch", strength=0.0)
    torch.testing.assert_close(half(x), 0.5 * (x + whole(x)))
    torch.testing.assert_close(none(x), x)


@pytest.mark.parametrize("options", [{"n_clipped": 2}, {"removal": "clip"}, {"centre": "shrink"}])
def test_frozen_statistics_survive_a_state_dict_and_other_batch_mates(options):
    options |= {"n_clusters": 3, "n_components": 2, "queue_rows": 256, "strength": 0.7}
    layer, other = (layer_with(12, **options) for _ in range(2))
    x = cloud().float()
    layer.observe(x)
    layer.fit()
    other.load_state_dict(layer.state_dict())
    layer.eval(), other.eval()
    assert torch.equal(layer(x), other(x))
    mates = torch.cat([x[:50], cloud(150, seed=9).float()])
    assert torch.equal(layer(mates)[:50], layer(x)[:50])
    assert not torch.equal(layer(x), x)


def test_gradcheck_through_what_is_spared_clipped_and_shrunk():
    x = cloud(8, 5).requires_grad_()
    stats = fit_with(
        x.detach(), 1, 1, n_clipped=1, centre="shrink", removal="clip", keep_scale=True, rho=1.0
    )
    assert torch.autograd.gradcheck(lambda rows: apply_cluster_pca(rows, stats), x)


@pytest.mark.parametrize("options", [{"removal": "clip"}, {"n_clipped": 2}, {}])
def test_scale_is_kept_where_asked(options):
    x = cloud().float()
    layer = layer_with(12, n_clusters=1, n_components=2, stats="batch", keep_scale=True, **options)
    plain = layer_with(12, n_clusters=1, n_components=2, stats="batch", **options)
    y = layer(x)
    torch.testing.assert_close(rms_distance(y), rms_distance(x))
    factor = rms_distance(x) / rms_distance(plain(x))
    torch.testing.assert_close(y, plain(x) * factor)
    assert factor > 1.2
    layer.fit(x)
    torch.testing.assert_close(layer.eval()(x), y, rtol=1e-4, atol=1e-4)
    assert torch.equal(layer.eval()(torch.ones(1, 12)), layer(torch.ones(1, 12)))
