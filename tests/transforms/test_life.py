"""The life that every layer with one map shares: batch and queue, frozen statistics, odd rows.

N rows, D width.
"""

import copy

import pytest
import torch

from isotrain.transforms.batch_norm import BatchNorm
from isotrain.transforms.cut_tails import CutTails
from isotrain.transforms.group_whitening import GroupWhitening
from isotrain.transforms.iso_bn import IsoBn
from isotrain.transforms.iter_norm import IterNorm
from isotrain.transforms.standardize import Standardize
from isotrain.transforms.whitening import Whitening
from isotrain.transforms.zca import ZCA

WHITENING = (ZCA, Whitening, IterNorm, GroupWhitening)
SCALING = (BatchNorm, CutTails, IsoBn, Standardize)
every_layer = pytest.mark.parametrize("kind", [*WHITENING, *SCALING])
scaling_layer = pytest.mark.parametrize("kind", SCALING)


def cloud(n, d=24, seed=0, mean=0.5, dtype=torch.float64):
    """Correlated dimensions of unequal variance, one far from zero and one that varies most."""
    generator = torch.Generator().manual_seed(seed)
    scale_D = 3.0 * 0.9 ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    x = x @ axes + mean
    x[:, 1] -= 40.0
    x[:, 4] *= 9.0
    return x.to(dtype)


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_training_takes_the_batch_alone_or_with_the_queue(kind, stats):
    old, new = cloud(20, seed=1), cloud(12, seed=2, mean=1.0)
    layer = kind(24, stats=stats).double()
    layer.observe(old)
    known = torch.cat([layer.queue.rows(), new]) if stats == "queue" else new
    torch.testing.assert_close(layer(new), kind(24, stats="batch").double()(known)[-12:])


@every_layer
def test_frozen_statistics_are_those_of_the_whole_queue_for_any_batch_mates(kind):
    parts = [cloud(16, seed=s, mean=s / 2) for s in range(4)]  # means drift between batches
    layer = kind(24, queue_rows=512).double()
    for part in parts:
        layer(part)
        layer.observe(part)
    layer.fit()
    x = torch.cat(parts)
    expected = kind(24, stats="batch").double()(x)
    torch.testing.assert_close(layer.eval()(x), expected, atol=1e-5, rtol=1e-5)
    other = torch.cat([x[:16], cloud(48, seed=9, mean=90.0)])
    assert torch.equal(layer(other)[:16], layer(x)[:16])


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_an_encoder_trains_through_it_and_a_state_dict_keeps_all(kind, stats):
    torch.manual_seed(0)
    encoder = torch.nn.Linear(24, 24)
    layer, twin = (kind(24, stats=stats, queue_rows=512) for _ in range(2))
    parameters = [*encoder.parameters(), *layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
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
    twin.load_state_dict(layer.state_dict())
    assert bool(layer.eval()(x).isfinite().all())
    assert torch.equal(twin.eval()(x), layer(x))
    assert torch.equal(twin.train()(x), layer.train()(x))


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_autocast_and_random_state_do_not_matter(kind, stats):
    x = cloud(64, dtype=torch.float32)
    before = torch.random.get_rng_state()
    one = kind(24, stats=stats)
    one.observe(x)
    two = copy.deepcopy(one)
    one.fit()
    with torch.autocast("cpu", torch.bfloat16):
        two.fit()
        assert torch.equal(two(x), one(x))
        assert torch.equal(two.eval()(x), one.eval()(x))
    assert torch.equal(before, torch.random.get_rng_state())


@every_layer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(kind, dtype):
    x, layer = cloud(64).to(dtype), kind(24, stats="batch")
    assert torch.equal(layer(x), layer(x.float()).to(dtype))
    assert layer(x.double()).dtype == torch.float64


@every_layer
def test_a_row_with_a_nan_stays_alone(kind):
    x = cloud(32, dtype=torch.float32)
    x[3, 2] = float("nan")
    clean = torch.cat([x[:3], x[4:]])
    layer = kind(24, stats="batch")
    found = torch.cat([layer(x)[:3], layer(x)[4:]])
    torch.testing.assert_close(found, layer(clean), atol=1e-4, rtol=1e-4)
    assert bool(layer(x)[3].isnan().any())
    layer.observe(x)
    assert bool(layer.queue.rows().isfinite().all())
    layer.fit(x)
    assert bool(layer.eval()(clean).isfinite().all())


@every_layer
@pytest.mark.parametrize("n", [1, 2, 3, 8, 32, 512])
@pytest.mark.parametrize("rows", ["different", "equal", "duplicates"])
def test_values_and_gradients_are_finite_and_equal_rows_pass(kind, n, rows):
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
        assert layer.counters["rows_passed_through"].item() == (n if passes else 0)
        if passes:
            assert torch.equal(y, x)
            assert bool((x.grad == 1.0).all())
        elif kind is not CutTails:  # leaves what has no tail
            assert not torch.equal(y, x)


@scaling_layer
def test_duplicates_count_like_the_rows_they_repeat(kind):
    x, layer = cloud(6), kind(24, stats="batch").double()
    torch.testing.assert_close(layer(x.repeat(5, 1))[:6], layer(x))


ERRORS = [
    *((kind, {"width": 0}, "width must be at least 1") for kind in (*WHITENING, *SCALING)),
    *((kind, {"stats": "ema"}, "stats must be batch or q") for kind in (*WHITENING, *SCALING)),
    *((kind, {"queue_rows": 1}, "queue_rows must be at least 2") for kind in (ZCA, IsoBn)),
    *((kind, {"epsilon": 0.0}, "above 0") for kind in (BatchNorm, IsoBn, Standardize, IterNorm)),
    *((kind, {"epsilon": -0.1}, "at least 0, got") for kind in (ZCA, Whitening, GroupWhitening)),
    (IsoBn, {"beta": -1.0}, "beta must be at least 0"),
    (Whitening, {"n_components": 0}, "n_components must be at least 1"),
    (Whitening, {"n_components": 9}, "at most width=8, got 9; lower n_components"),
    (GroupWhitening, {"group_size": 5}, "group_size must divide width=8, got 5; take 4"),
    (GroupWhitening, {"group_size": 0}, "group_size must be at least 1"),
    (IterNorm, {"group_size": 5}, "group_size must divide width=8, got 5; take 4"),
    (IterNorm, {"n_iterations": 5}, "n_iterations must be at least 15, got 5"),
    (IterNorm, {"grad": "half"}, "grad must be full or detach"),
    (CutTails, {"dims": [8]}, r"some, not all, of 0 to width − 1 = 7, got \[8\]"),
    (CutTails, {"dims": [-1]}, "got .-1"),
    (CutTails, {"dims": "308"}, "got .'3'"),
    (CutTails, {"dims": range(8)}, "not all"),
    (CutTails, {"mode": "drop"}, "mode must be clip or zero"),
    (CutTails, {"clip_sd": 0.0}, "clip_sd must be above 0"),
    (CutTails, {"threshold": 1.0}, "threshold must be at least 2"),
    (CutTails, {"variance_factor": 1.0}, "variance_factor must be at least 2"),
]


@pytest.mark.parametrize(("kind", "options", "words"), ERRORS)
def test_constructor_errors_name_the_option(kind, options, words):
    with pytest.raises(ValueError, match=words):
        kind(**{"width": 8, **options})
