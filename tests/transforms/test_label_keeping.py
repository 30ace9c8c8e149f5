"""Protected directions: a label on the dominant direction survives, and who may read labels."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.linear_probe_accuracy import linear_probe_accuracy
from isotrain.metrics.partition import partition
from isotrain.transforms.clip import Clip
from tests.clouds import normal
from tests.clouds import two_blobs as cloud
from tests.cluster_parts import layer_with
from tests.transforms.test_cluster_gradients import layer_of as cluster_layer

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
    layer = layer_with(D, n_components=1, stats="batch", rho=0.25, **options).train()
    return layer(x_ND)


def test_the_published_layer_deletes_the_label(two_classes):
    x, labels = two_classes
    probe, ln_i, score = measured(x, labels)
    assert (probe, ln_i < -7.0, score < 0.05) == (1.0, True, True)
    for k in (1, 2, 8):
        probe, ln_i, score = measured(of_layer(x, n_clusters=k), labels)
        assert (probe < 0.6, ln_i > -1.0, score > 0.7) == (True, True, True)


def test_clipping_keeps_it_at_the_same_isotropy(two_classes):
    x, labels = two_classes
    projected = measured(of_layer(x, n_clusters=1), labels)
    clipped = measured(of_layer(x, n_clusters=1, kind=Clip), labels)
    assert clipped[0] > 1.0 - 0.005
    assert clipped[1] == pytest.approx(projected[1], abs=0.2)
    assert clipped[2] == pytest.approx(projected[2], abs=0.01)


@pytest.mark.parametrize("k", [2, 8])
def test_clipping_cannot_save_what_cluster_centring_deletes(two_classes, k):
    x, labels = two_classes
    assert measured(of_layer(x, n_clusters=k, kind=Clip), labels)[0] < 0.6


@pytest.mark.parametrize("k", [1, 2, 8])
@pytest.mark.parametrize("option", [{"n_leading": 1}, {"protect_labels": True}])
def test_protected_directions_keep_the_label_for_any_number_of_clusters(two_classes, k, option):
    x, labels = two_classes
    layer = layer_with(D, n_clusters=k, n_components=1, stats="batch", **option)
    probe, ln_i, score = measured(layer(x, *[labels] * layer.reads_labels), labels)
    assert (probe > 1.0 - 0.005, ln_i > -1.0, score > 0.7) == (True, True, True)


def test_protected_directions_come_back_at_the_noise_floor_and_can_be_undone():
    x = normal(200, 12, mean=3.0) * torch.linspace(4.0, 0.5, 12, dtype=torch.float64)
    layer = layer_with(12, 1, 0, n_leading=3, stats="batch").double()
    stats = layer.estimate(x)
    y = layer.transform(x, stats, are_last=False)
    value, vector = torch.linalg.eigh(torch.cov(x.T))
    factor = torch.ones_like(value)
    factor[-3:] = (value[:-3].sum() / (12 - 3) / value[-3:]).sqrt()
    mean = x.mean(dim=0)
    expected = (x - mean) @ (vector * factor) @ vector.T
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    back = layer.transform(y + mean, replace(stats, kept_J=1.0 / stats.kept_J), are_last=False)
    torch.testing.assert_close(back, x - mean, rtol=1e-9, atol=1e-9)


# Labels


def halves(n):
    """Labels across the blobs: the first half and the second."""
    return (torch.arange(n) >= n // 2).long()


layer_of = partial(cluster_layer, protect_labels=True)


def test_a_layer_that_reads_labels_says_so_where_they_are_missing():
    layer, x = layer_of(), cloud()
    assert layer.reads_labels
    for call in (layer, layer.observe, layer.fit):
        with pytest.raises(ValueError, match=r"one per embedding: .*layer\(x, labels\)"):
            call(x)
    assert len(layer.queue.rows()) == 0
    assert not bool(layer.is_fitted)


def test_evaluation_takes_no_labels():
    x, layer = cloud(), layer_of()
    layer.fit(x, halves(60))
    expected = layer.eval()(x)
    assert torch.equal(layer(x, 1 - halves(60)), expected)
    with pytest.raises(ValueError, match="this layer reads labels"):
        layer_of(eval_stats="batch").eval()(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fit_reads_the_labels_of_the_queue(dtype):
    x, labels = cloud(40, dtype=dtype), 5.0 * normal(40, seed=3).abs()
    layer, other = (layer_of(dtype=dtype) for _ in range(2))
    for part in (slice(0, 25), slice(25, 40)):
        layer.observe(x[part], labels[part])
    other.fit(x, labels)
    layer.is_warm = False  # the same start of k-means
    layer.fit()
    torch.testing.assert_close(layer.eval()(x), other.eval()(x))


def test_training_with_a_queue_knows_the_labels_of_both():
    old, new = cloud(50, seed=4), cloud(10, seed=5)
    labels = torch.cat([halves(50), halves(10)])
    whole, queued = layer_of(stats="batch", n_clusters=1), layer_of(n_clusters=1)
    queued.observe(old, labels[:50])
    expected = whole(torch.cat([old, new]), labels)[50:]
    torch.testing.assert_close(queued(new, labels[50:]), expected)
    wrong = queued(new, 1 - labels[50:])
    assert float((wrong - expected).abs().max()) > 1e-3  # labels matter


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_gaps_between_classes_come_back_at_the_noise_floor(n_classes):
    labels = torch.arange(90) % n_classes
    x = cloud(90) + 5.0 * torch.eye(n_classes, 6, dtype=torch.float64)[labels]
    layer = layer_of(stats="batch", n_components=2)
    y, stats = layer(x, labels), layer.estimate(x, labels_N=labels)
    axes = stats.spared_DJ[:, stats.spared_DJ.any(dim=0)]
    assert axes.shape == (6, n_classes - 1)
    level = float((y - y @ axes @ axes.T).var(dim=0).sum() / (6 - (n_classes - 1)))
    assert float((y @ axes).var(dim=0).max()) == pytest.approx(level, rel=1e-9)
    for c in range(1, n_classes):
        gap_x, gap_y = (
            (z[labels == c].mean(dim=0) - z[labels == 0].mean(dim=0)) @ stats.spared_DJ
            for z in (x, y)
        )
        torch.testing.assert_close(gap_y, gap_x * stats.kept_J)
        assert float(gap_y.norm()) > 0.1


def test_a_rare_class_is_a_class_in_batch_queue_and_fit():
    """Two of 60, of the lowest number: as scores they would fall into one slice with all."""
    x, labels = cloud(), (torch.arange(60) > 1).long()
    axis = torch.nn.functional.normalize(x[:2].mean(dim=0) - x[2:].mean(dim=0), dim=0)
    layer, other, scores = (layer_of() for _ in range(3))
    layer.observe(x, labels)
    other.load_state_dict(layer.state_dict())
    scores.observe(x, labels.double())
    for fitted, arguments, expected in (
        *((one, given, 1.0) for one in (layer, other) for given in ((), (x, labels))),
        (scores, (), 0.0),
    ):
        fitted.spared_DJ.zero_()
        fitted.fit(*arguments)
        overlap = float((axis @ fitted.spared_DJ[:, 0]).abs())
        assert overlap == pytest.approx(expected, abs=1e-9)


def test_embeddings_and_labels_that_are_not_finite_stay_out():
    x, labels = cloud(30), halves(30).double()
    layer, keep = layer_of(stats="batch"), torch.arange(30) >= 2
    expected = layer(x[keep], labels[keep])
    x[0, 2], labels[1] = float("nan"), float("nan")
    torch.testing.assert_close(layer(x, labels)[keep], expected)
    layer.observe(x, labels)
    assert len(layer.queue.rows()) == 28


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_few_embeddings_one_class_and_equal_embeddings_are_finite(n, dtype):
    layer, several = (
        layer_of(stats="batch", n_leading=2, dtype=torch.float32),
        cloud(n, dtype=dtype),
    )
    for labels in (torch.zeros(n), torch.arange(n), normal(n).abs().float()):
        y = layer(several, labels)
        assert y.dtype == dtype
        assert bool(torch.isfinite(y).all())
        equal = several[:1].repeat(n, 1)
        assert torch.equal(layer(equal, labels), equal)
        assert layer.counters["rows_passed_through"] == n
