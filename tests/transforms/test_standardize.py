"""Standardize against scikit-learn, closed forms of its gradient, and its contract.

N rows, D width.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from isotrain.transforms.standardize import Standardize

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.rand(d, generator=generator, dtype=torch.float64) * 3.0 + 0.05
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean
    return x.to(dtype)


def rms_norm(x):
    return x.square().sum(dim=1).mean().sqrt()


def fitted(x, **options):
    layer = Standardize(x.shape[1], queue_rows=8 * len(x), **options).to(x.dtype)
    layer.observe(x)
    layer.fit()
    return layer.eval()


@pytest.mark.parametrize(("n", "d"), [(4, 6), (50, 8), (32, 64)])
def test_equals_scikit_learn(n, d):
    x = cloud(n, d)
    y = Standardize(d, epsilon=1e-14, keep_scale=False, stats="batch")(x)
    expected = torch.from_numpy(StandardScaler().fit_transform(x.numpy()))
    torch.testing.assert_close(y, expected, atol=1e-9, rtol=0)


def test_epsilon_is_a_part_of_the_mean_variance():
    x = torch.tensor([[-1.0, 7.0], [1.0, 7.0]], dtype=torch.float64)  # variances 1 and 0
    y = Standardize(2, epsilon=6.0, keep_scale=False, stats="batch")(x)  # 1 + 6·½ = 2²
    torch.testing.assert_close(y, torch.tensor([[-0.5, 0.0], [0.5, 0.0]], dtype=torch.float64))


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 10_000), st.floats(1e-3, 1e3))
@light
def test_rms_norm_is_kept_and_uniform_scale_goes_through(n, d, seed, scale):
    x = cloud(n, d, seed)
    layer = Standardize(d, stats="batch")
    y = layer(x)
    torch.testing.assert_close(rms_norm(y), rms_norm(x))
    torch.testing.assert_close(layer(scale * x), scale * y)
    torch.testing.assert_close(y.mean(dim=0) / rms_norm(y), torch.zeros(d, dtype=torch.float64))
    sd_D = y.std(dim=0, correction=0)
    if float(x.var(dim=0, correction=0).min()) > 0.1 * float(x.var(dim=0).mean()):
        torch.testing.assert_close(sd_D, sd_D.mean().expand(d), rtol=1e-3, atol=0)


def test_without_keep_scale_shift_and_scale_of_each_dimension_do_not_matter():
    x = cloud(30, 5)
    layer = Standardize(5, epsilon=1e-14, keep_scale=False, stats="batch")
    scale_D = torch.tensor([0.1, 1.0, 3.0, 10.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(layer(x * scale_D - 40.0), layer(x), atol=1e-9, rtol=0)


@pytest.mark.parametrize("mean", [30.0, 1e4])
def test_float32_is_close_to_float64_with_a_large_mean(mean):
    x = cloud(256, 16, mean=mean, dtype=torch.float32)
    layer = Standardize(16, keep_scale=False, stats="batch")
    assert float((layer(x).double() - layer(x.double())).abs().max()) < 1e-6 * mean


def test_a_dimension_that_does_not_vary_is_nearly_zero():
    x = cloud(64, 6, dtype=torch.float32)
    x[:, 2] = 1234.567
    y = Standardize(6, keep_scale=False, stats="batch")(x)
    assert float(y[:, 2].abs().max()) < 0.05


@pytest.mark.parametrize("n", [1, 2, 8, 512])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_equal_rows_pass_through_and_are_counted(n, dtype):
    x = cloud(1, 12, dtype=dtype).repeat(n, 1).requires_grad_()
    layer = Standardize(12, stats="batch")
    y = layer(x)
    assert torch.equal(y, x)
    assert layer.counters["rows_passed_through"].item() == n
    y.float().sum().backward()
    assert bool((x.grad == 1.0).all())


def test_scatter_too_small_to_square_passes_through():
    x = 1e-30 * cloud(8, 4, dtype=torch.float32)
    assert torch.equal(Standardize(4, stats="batch")(x), x)


def test_duplicates_count_like_the_rows_they_repeat():
    x = cloud(6, 9)
    layer = Standardize(9, stats="batch")
    torch.testing.assert_close(layer(x.repeat(5, 1))[:6], layer(x))
    assert layer.counters["rows_passed_through"].item() == 0


def test_gradient_is_centred_and_scaled():
    x = cloud(16, 5).requires_grad_()
    upstream = cloud(16, 5, seed=1)
    Standardize(5, stats="batch")(x).backward(upstream)
    factor_D = Standardize(5).estimate(x.detach()).factor_D
    expected = (upstream - upstream.mean(dim=0)) * factor_D
    torch.testing.assert_close(x.grad, expected)


def test_queue_statistics_join_the_queue_and_the_batch():
    old, new = cloud(40, 6), cloud(10, 6, seed=1, mean=-1.0)
    layer = Standardize(6, stats="queue").double()
    layer.observe(old)
    both = Standardize(6, stats="batch")(torch.cat([old, new]))
    torch.testing.assert_close(layer(new), both[40:])


@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_training_then_frozen_evaluation(stats):
    torch.manual_seed(0)
    encoder = torch.nn.Linear(6, 6)
    layer = Standardize(6, stats=stats, queue_rows=64)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    x = cloud(32, 6, dtype=torch.float32)
    target, losses = cloud(32, 6, seed=1, mean=0.0, dtype=torch.float32), []
    for _ in range(30):
        rows = encoder(x)
        loss = (layer(rows) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.observe(rows)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    layer.fit()
    assert bool(torch.isfinite(layer.eval()(encoder(x))).all())


def test_frozen_rows_do_not_depend_on_batch_mates_and_survive_a_state_dict():
    x = cloud(64, 8, dtype=torch.float32)
    layer = fitted(x)
    other = torch.cat([x[:16], cloud(48, 8, seed=3, mean=90.0, dtype=torch.float32)])
    assert torch.equal(layer(other)[:16], layer(x)[:16])
    torch.testing.assert_close(layer(x), Standardize(8, stats="batch")(x))
    twin = Standardize(8, queue_rows=8 * 64)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.eval()(x), layer(x))
    assert torch.equal(twin.train()(x), layer.train()(x))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"stats": "running"}, "stats must be batch or queue"),
        ({"queue_rows": 1}, "queue_rows must be at least 2"),
    ],
)
def test_errors_name_the_option(options, words):
    with pytest.raises(ValueError, match=words):
        Standardize(**{"width": 8, **options})
