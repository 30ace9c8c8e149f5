"""The life of every layer: batch and queue, frozen statistics, precision, odd embeddings."""

import copy
import pickle
from functools import partial

import pytest
import torch

from isotrain.transforms.batch_norm import BatchNorm
from isotrain.transforms.clip import Clip
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.cut_tails import CutTails
from isotrain.transforms.group_whitening import GroupWhitening
from isotrain.transforms.iso_bn import IsoBn
from isotrain.transforms.iso_grad import IsoGrad
from isotrain.transforms.iter_norm import IterNorm
from isotrain.transforms.protected_cluster_pca import ProtectedClusterPCA
from isotrain.transforms.shrink_clip import ShrinkClip
from isotrain.transforms.spectral_temper import SpectralTemper
from isotrain.transforms.standardize import Standardize
from isotrain.transforms.whitening import Whitening
from isotrain.transforms.zca import ZCA
from tests.clouds import correlated
from tests.cluster_parts import layer_with

WHITENING = (ZCA, Whitening, IterNorm, GroupWhitening, SpectralTemper)
SCALING = (BatchNorm, CutTails, IsoBn, Standardize)
ONE_CLUSTER = partial(ClusterPCA, n_clusters=1, n_components=2)
PROTECTED = partial(ProtectedClusterPCA, n_clusters=1, n_components=1, n_leading=1)
CLUSTERS = (
    partial(ClusterPCA, n_clusters=4, n_components=2),
    *(
        partial(layer_with, **{"n_clusters": 3, "n_components": 2, **options})
        for options in (
            {"n_leading": 2, "n_components": 1},
            {"kind": Clip, "strength": 0.7},
            {"kind": ShrinkClip, "level": 3.0, "strength": 0.7},
        )
    ),
)
MAPS = (*WHITENING, *SCALING, ONE_CLUSTER, PROTECTED)
IN_PART = (CutTails, PROTECTED, CLUSTERS[1])  # may leave, or count, a part of an embedding
every_map = pytest.mark.parametrize("kind", MAPS)
every_layer = pytest.mark.parametrize("kind", [*MAPS, *CLUSTERS])


def cloud(n, d=24, seed=0, mean=0.5, dtype=torch.float64):
    """Correlated dimensions, one of them far from zero and one that varies most."""
    x = correlated(n, d, seed, mean, decay=0.9)
    x[:, 1] -= 40.0
    x[:, 4] *= 9.0
    return x.to(dtype)


def states_equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@every_map
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_training_takes_the_batch_alone_or_with_the_queue(kind, stats):
    old, new = cloud(20, seed=1), cloud(12, seed=2, mean=1.0)
    layer = kind(24, stats=stats).double()
    layer.observe(old)
    known = torch.cat([layer.queue.rows(), new]) if stats == "queue" else new
    alone = kind(24, stats="batch").double()
    alone.load_state_dict(layer.state_dict())  # the same axes
    torch.testing.assert_close(layer(new), alone(known)[-12:])


@every_map
def test_frozen_statistics_are_those_of_the_whole_queue_or_of_given_embeddings(kind):
    parts = [cloud(16, seed=s, mean=s / 2) for s in range(4)]  # means drift between batches
    layer, fitted = (kind(24, queue_rows=512).double() for _ in range(2))
    alone = kind(24, queue_rows=512, stats="batch").double()
    for part in parts:
        layer(part)
        layer.observe(part)
    for other in (fitted, alone):
        other.load_state_dict(layer.state_dict())  # the same axes
    layer.fit()
    x = torch.cat(parts)
    fitted.fit(x)
    expected = alone(x)
    torch.testing.assert_close(layer.eval()(x), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fitted.eval()(x), expected, atol=1e-5, rtol=1e-5)


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_an_encoder_trains_through_it_and_copies_keep_all(kind, stats):
    torch.manual_seed(0)
    encoder = torch.nn.Linear(24, 24)
    layer = kind(24, stats=stats, queue_rows=512)
    optimizer = torch.optim.SGD([*encoder.parameters(), *layer.parameters()], lr=1e-3)
    x, losses = cloud(64, dtype=torch.float32), []
    for _ in range(20):
        rows = encoder(x)
        loss = (layer(rows) - 1.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.observe(rows)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    layer.fit()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        for training in (True, False):
            expected = layer.train(training)(x)
            assert bool(expected.isfinite().all())
            assert torch.equal(other.train(training)(x), expected)
        other.observe(x + 1.0)
        assert not states_equal(other.state_dict(), layer.state_dict())


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_autocast_and_random_state_do_not_matter(kind, stats):
    x = cloud(64, dtype=torch.float32)
    before = torch.random.get_rng_state()
    one = kind(24, stats=stats)
    two = copy.deepcopy(one)
    one.observe(x)
    expected = one(x)
    one.fit()
    with torch.autocast("cpu", torch.bfloat16):
        two.observe(x)
        assert torch.equal(two(x), expected)
        two.fit()
        assert torch.equal(two.eval()(x), one.eval()(x))
    assert torch.equal(before, torch.random.get_rng_state())


@every_layer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(kind, dtype):
    x, layer = cloud(64).to(dtype), kind(24, stats="batch")
    assert torch.equal(layer(x), layer(x.float()).to(dtype))
    assert layer(x.double()).dtype == torch.float64
    layer.to(dtype)  # as Lightning's bf16-true moves its buffers
    layer.observe(x)
    layer.fit()
    y = layer.eval()(x)
    assert y.dtype == dtype
    assert bool(torch.isfinite(y).all())


@every_layer
@pytest.mark.parametrize("n", [1, 2, 3, 8, 32, 512])
@pytest.mark.parametrize("rows", ["different", "equal", "duplicates"])
def test_values_and_gradients_are_finite_and_equal_embeddings_pass(kind, n, rows):
    for dtype in (torch.float32, torch.float64):
        x = cloud(n, mean=2.0, dtype=dtype)
        if rows != "different":
            x = (x[:1] if rows == "equal" else x[: max(1, n // 4)]).repeat(n, 1)[:n]
        x.requires_grad_()
        layer = kind(24, stats="batch")
        y = layer(x)
        y.sum().backward()
        assert bool(y.isfinite().all())
        assert bool(x.grad.isfinite().all())
        passes = bool((x == x[0]).all())
        if passes or kind not in IN_PART:
            assert layer.counters["rows_passed_through"].item() == (n if passes else 0)
            assert torch.equal(y, x) == passes
        if passes:
            torch.testing.assert_close(x.grad, torch.ones_like(x), rtol=1e-6, atol=0)


def test_no_embeddings_are_no_problem():
    layer = ClusterPCA(3, n_clusters=2, n_components=1, stats="batch")
    assert layer(torch.zeros(0, 3)).shape == (0, 3)
    layer.observe(torch.zeros(0, 3))
    assert len(layer.queue.rows()) == 0


@pytest.mark.parametrize("kind", SCALING)
def test_duplicates_count_like_the_embeddings_they_repeat(kind):
    x, layer = cloud(6), kind(24, stats="batch").double()
    torch.testing.assert_close(layer(x.repeat(5, 1))[:6], layer(x))


ERRORS = [
    *((kind, {"width": 0}, "width must be at least 1") for kind in MAPS),
    *((kind, {"stats": "ema"}, "stats must be batch, queue or start, got 'e") for kind in MAPS),
    *((kind, {"eval_stats": "queue"}, "eval_stats must be frozen, refit or b") for kind in MAPS),
    *((kind, {"queue_rows": 1}, "queue_rows must be at least 2") for kind in MAPS),
    *((kind, {"epsilon": 0.0}, "above 0") for kind in (BatchNorm, IsoBn, Standardize, IterNorm)),
    *((kind, {"epsilon": -0.1}, "at least 0, got") for kind in (ZCA, Whitening, GroupWhitening)),
    (IsoGrad, {"width": 0}, "width must be at least 1"),
    (IsoGrad, {"queue_rows": 1}, "queue_rows must be at least 2"),
    (IsoGrad, {"rho": -0.1}, "rho must be at least 0"),
    (SpectralTemper, {"target": 0.0}, "target must be above 0"),
    (SpectralTemper, {"target": 1.1}, "target must be at most 1"),
    (SpectralTemper, {"target": 0.125}, "above 1/width = 0.125, got 0.125: .*isotropy=mean"),
    (IsoBn, {"beta": -1.0}, "beta must be at least 0"),
    (Whitening, {"n_components": 0}, "n_components must be at least 1"),
    (Whitening, {"n_components": 9}, "at most width=8, got 9; lower n_components"),
    (GroupWhitening, {"group_size": 0}, "group_size must be at least 1"),
    (IterNorm, {"n_iterations": 5}, "n_iterations must be at least 15, got 5"),
    (CutTails, {"dims": [8]}, r"some, not all, of 0 to width − 1 = 7, got \[8\]"),
    (CutTails, {"dims": [-1]}, "got .-1"),
    (CutTails, {"dims": "308"}, "dims must be a list, got '308'"),
    (CutTails, {"dims": range(8)}, "not all"),
    (CutTails, {"clip_sd": -1.0}, "clip_sd must be at least 0"),
    (CutTails, {"threshold": 1.0}, "threshold must be at least 2"),
    (CutTails, {"variance_factor": 1.0}, "variance_factor must be at least 2"),
    (layer_with, {"n_clusters": 0}, "n_clusters must be at least 1"),
    (layer_with, {"n_components": -1}, "n_components must be at least 0"),
    (layer_with, {"rho": 0.0}, "rho must be above 0, got 0.0"),
    (layer_with, {"rho": 1.1}, "rho must be at most 1, got 1.1"),
    (layer_with, {"rho": float("nan")}, "rho must be a finite number, got nan"),
    (layer_with, {"n_leading": 8}, "n_leading must be below width=8, got 8; lower n_leading"),
]


@pytest.mark.parametrize(("kind", "options", "words"), ERRORS)
def test_constructor_errors_name_the_option(kind, options, words):
    with pytest.raises(ValueError, match=words):
        kind(**{"width": 8, **options})
