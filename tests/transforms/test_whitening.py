"""PCA whitening against scikit-learn; the life that the four whitening layers share.

N rows, D width, R directions.
"""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.group_whitening import GroupWhitening
from isotrain.transforms.iter_norm import IterNorm
from isotrain.transforms.whitening import Whitening
from isotrain.transforms.zca import ZCA

light = settings(max_examples=25)


def estimate(x, *args, **options):
    """The layer's statistics of a cloud."""
    return Whitening(x.shape[1], *args, **options).estimate(x)


every_layer = pytest.mark.parametrize("kind", [ZCA, Whitening, IterNorm, GroupWhitening])


def cloud(n, d, seed=0, mean=0.0, dtype=torch.float64, decay=0.8):
    generator = torch.Generator().manual_seed(seed)
    scale_D = 3.0 * decay ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return (x @ axes + mean).to(dtype)


# --- PCA whitening ----------------------------------------------------------------------------


@pytest.mark.parametrize("r", [1, 3, 8])
def test_equals_scikit_learn_but_for_signs(r):
    x = cloud(100, 8, mean=3.0)
    expected = torch.from_numpy(PCA(n_components=r, whiten=True).fit_transform(x.numpy()))
    y = Whitening(8, epsilon=0.0, n_components=r, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(y[:, :r].abs(), expected.abs(), atol=1e-9, rtol=0)
    assert not y[:, r:].any()


@pytest.mark.parametrize("d", [1, 6, 50])
def test_full_whitening_gives_the_identity_covariance(d):
    x = cloud(60, d, mean=5.0, decay=0.97)
    y = Whitening(d, epsilon=0.0, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(torch.cov(y.T), torch.eye(d).double().squeeze(), atol=1e-10, rtol=0)


@pytest.mark.parametrize(("n", "d"), [(3, 7), (7, 7), (80, 7)])
def test_variances_are_the_soft_ones_in_falling_order(n, d):
    x = cloud(n, d)
    value_D = torch.from_numpy(np.linalg.eigvalsh(np.cov(x.numpy(), rowvar=False))[::-1].copy())
    mean_value = value_D.mean()
    y = Whitening(d, epsilon=0.3, stats="batch")(x)
    expected = torch.diag(mean_value * value_D / (value_D + 0.3 * mean_value))
    torch.testing.assert_close(torch.cov(y.T), expected, atol=1e-9, rtol=0)


@given(st.integers(2, 30), st.integers(1, 10), st.floats(1e-3, 1e3), st.integers(0, 10_000))
@light
def test_cosines_are_those_of_zca_and_signs_do_not_depend_on_the_factor(n, d, factor, seed):
    x = cloud(n, d, seed)
    y, z = Whitening(d, stats="batch")(x), ZCA(d, stats="batch")(x)
    torch.testing.assert_close(y @ y.T, z @ z.T, atol=1e-7, rtol=1e-7)
    scaled = factor * x + 5.0
    again = apply_whitening(scaled, estimate(scaled)) / factor
    torch.testing.assert_close(again.abs(), y.abs(), atol=1e-6, rtol=1e-6)


def test_signs_do_not_depend_on_the_order_of_rows():
    x = cloud(50, 6)
    found = estimate(x.flip(0)).matrix_DD
    torch.testing.assert_close(found, estimate(x).matrix_DD, atol=1e-9, rtol=0)


def test_the_gradient_runs_through_the_rows_and_their_mean():
    x, upstream = cloud(40, 8).requires_grad_(), cloud(40, 8, seed=1)
    Whitening(8, n_components=3, stats="batch")(x).backward(upstream)
    matrix_DD = estimate(x.detach(), n_components=3).matrix_DD
    torch.testing.assert_close(x.grad, (upstream - upstream.mean(dim=0)) @ matrix_DD.T)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"n_components": 9}, "at most width=8, got 9; lower n_components"),
        ({"epsilon": -1.0}, "epsilon must be at least 0"),
    ],
)
def test_constructor_errors_name_the_option(options, words):
    with pytest.raises(ValueError, match=words):
        Whitening(**{"width": 8, **options})


# --- the life of all four ---------------------------------------------------------------------


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_training_takes_the_batch_alone_or_with_the_queue(kind, stats):
    old, new = cloud(20, 8, seed=1), cloud(12, 8, seed=2, mean=1.0)
    layer = kind(8, stats=stats).double()
    layer.observe(old)
    known = torch.cat([layer.queue.rows(), new]) if stats == "queue" else new
    expected = kind(8, stats="batch")(known)[-12:]
    torch.testing.assert_close(layer(new), expected)


@every_layer
def test_frozen_statistics_are_those_of_the_queue(kind):
    x, new = cloud(64, 8, seed=3), cloud(10, 8, seed=4)
    layer = kind(8, queue_rows=512).double()
    layer.observe(x)
    layer.fit()
    y = layer.eval()(new)
    stats = layer.estimate(x)
    torch.testing.assert_close(y, (new - stats.centre_D) @ stats.matrix_DD)
    torch.testing.assert_close(layer(x), kind(8, stats="batch")(x))
    other = torch.cat([new[:3], cloud(7, 8, seed=5, mean=9.0)])  # other batch-mates
    assert torch.equal(layer(other)[:3], y[:3])


@every_layer
def test_state_dict_round_trip(kind):
    x = cloud(64, 8, dtype=torch.float32)
    layer, twin = kind(8), kind(8)
    layer.observe(x)
    layer.fit()
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.eval()(x), layer.eval()(x))
    assert torch.equal(twin.train()(x), layer.train()(x))


@every_layer
@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_autocast_changes_nothing(kind, stats):
    x = cloud(64, 8, dtype=torch.float32)
    one = kind(8, stats=stats)
    one.observe(x)
    two = copy.deepcopy(one)
    one.fit()
    with torch.autocast("cpu", torch.bfloat16):
        two.fit()
        assert torch.equal(two(x), one(x))
        assert torch.equal(two.eval()(x), one.eval()(x))


@every_layer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(kind, dtype):
    x = cloud(64, 8).to(dtype)
    layer = kind(8, stats="batch")
    assert torch.equal(layer(x), layer(x.float()).to(dtype))
    assert layer(x.double()).dtype == torch.float64


@every_layer
def test_a_row_with_a_nan_stays_alone(kind):
    x = cloud(32, 8, dtype=torch.float32)
    x[3, 2] = float("nan")
    clean = torch.cat([x[:3], x[4:]])
    layer = kind(8, stats="batch")
    found = torch.cat([layer(x)[:3], layer(x)[4:]])
    torch.testing.assert_close(found, layer(clean), atol=1e-5, rtol=1e-5)
    assert bool(layer(x)[3].isnan().all())
    layer.observe(x)
    assert bool(layer.queue.rows().isfinite().all())
    layer.fit(x)
    assert bool(layer.matrix_DD.isfinite().all())


@every_layer
@pytest.mark.parametrize("n", [1, 2, 3, 8, 32, 512])
@pytest.mark.parametrize("rows", ["different", "equal", "duplicates"])
def test_values_and_gradients_are_finite(kind, n, rows):
    x = cloud(n, 16, mean=2.0, dtype=torch.float32)
    if rows != "different":
        x = (x[:1] if rows == "equal" else x[: max(1, n // 4)]).repeat(n, 1)[:n]
    x.requires_grad_()
    layer = kind(16, stats="batch")
    y = layer(x)
    y.square().sum().backward()
    assert bool(y.isfinite().all())
    assert bool(x.grad.isfinite().all())
    passes = bool((x == x[0]).all())
    assert layer.counters["rows_passed_through"].item() == (n if passes else 0)
    assert torch.equal(y, x) == passes


@every_layer
def test_global_random_state_is_never_read(kind):
    before = torch.random.get_rng_state()
    layer = kind(8)
    layer.observe(cloud(16, 8, dtype=torch.float32))
    layer.fit()
    layer(cloud(16, 8))
    assert torch.equal(before, torch.random.get_rng_state())
