"""BatchNorm against torch.nn.BatchNorm1d, and its contract. N rows, D width."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.batch_norm import BatchNorm

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.rand(d, generator=generator, dtype=torch.float64) * 3.0 + 0.05
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean
    return x.to(dtype)


def pair(d, affine=True, **options):
    """The layer and torch's, with the same weights."""
    ours = BatchNorm(d, affine=affine, **options).double()
    theirs = torch.nn.BatchNorm1d(d, affine=affine).double()
    if affine:
        with torch.no_grad():
            for name, seed in (("weight", 5), ("bias", 6)):
                values_D = cloud(1, d, seed)[0]
                getattr(ours, name).copy_(values_D)
                getattr(theirs, name).copy_(values_D)
    return ours, theirs


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 3), (50, 8), (16, 40)])
def test_training_equals_torch_with_all_gradients(n, d, affine):
    ours, theirs = pair(d, affine)
    upstream = cloud(n, d, seed=1)
    found = []
    for layer in (ours, theirs):
        x = cloud(n, d).requires_grad_()
        y = layer(x)
        y.backward(upstream)
        found.append([y.detach(), x.grad, *(p.grad for p in layer.parameters())])
    assert len(found[0]) == (4 if affine else 2)
    for mine, reference in zip(*found, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-9, rtol=1e-9)


def test_float32_equals_torch():
    x = cloud(64, 16, dtype=torch.float32)
    torch.testing.assert_close(BatchNorm(16)(x), torch.nn.BatchNorm1d(16)(x), atol=1e-6, rtol=0)


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 10_000))
@light
def test_dimensions_come_out_centred_and_at_most_of_variance_one(n, d, seed):
    y = BatchNorm(d).double()(cloud(n, d, seed)).detach()
    assert float(y.mean(dim=0).abs().max()) < 1e-9
    assert float(y.var(dim=0, correction=0).max()) <= 1.0 + 1e-9


def test_training_gradient_is_orthogonal_to_shift_and_scale():
    x = cloud(20, 5).requires_grad_()
    BatchNorm(5, epsilon=1e-12, affine=False)(x).backward(cloud(20, 5, seed=1))
    zero_D = torch.zeros(5, dtype=torch.float64)
    torch.testing.assert_close(x.grad.sum(dim=0), zero_D, atol=1e-9, rtol=0)
    torch.testing.assert_close((x.grad * x.detach()).sum(dim=0), zero_D, atol=1e-8, rtol=0)


@pytest.mark.parametrize("n", [1, 2, 8, 512])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_equal_rows_pass_through_without_weight_and_bias(n, dtype):
    layer, _ = pair(12)
    x = cloud(1, 12, dtype=dtype).repeat(n, 1).requires_grad_()
    y = layer.float()(x)
    assert torch.equal(y, x)
    assert layer.counters["rows_passed_through"].item() == n
    y.float().sum().backward()
    assert bool((x.grad == 1.0).all())
    assert bool((layer.weight.grad == 0.0).all())  # there, for processes that wait for it


def test_duplicates_count_like_the_rows_they_repeat():
    x, layer = cloud(6, 9), BatchNorm(9).double()
    torch.testing.assert_close(layer(x.repeat(5, 1))[:6], layer(x))
    assert layer.counters["rows_passed_through"].item() == 0


def test_gradcheck_of_training():
    layer, _ = pair(3, stats="batch")
    assert torch.autograd.gradcheck(layer, cloud(5, 3).requires_grad_())


def test_queue_statistics_join_the_queue_and_the_batch():
    old, new = cloud(40, 6), cloud(10, 6, seed=1, mean=-1.0)
    layer, theirs = pair(6, stats="queue")
    layer.observe(old)
    torch.testing.assert_close(layer(new), theirs(torch.cat([old, new]))[40:])


def test_frozen_statistics_are_those_of_the_whole_queue_not_running_means():
    layer, theirs = pair(6, queue_rows=512)
    parts = [cloud(32, 6, seed=s, mean=float(s)) for s in range(4)]  # means drift between batches
    for part in parts:
        layer(part)
        layer.observe(part)
    layer.fit()
    new = cloud(10, 6, seed=9)
    rows = torch.cat(parts)
    theirs.running_mean.copy_(rows.mean(dim=0))
    theirs.running_var.copy_(rows.var(dim=0, correction=0))
    torch.testing.assert_close(layer.eval()(new), theirs.eval()(new))


@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_weights_train_and_evaluation_is_frozen_and_survives_a_state_dict(stats):
    x = cloud(64, 8, dtype=torch.float32)
    layer = BatchNorm(8, stats=stats, queue_rows=512)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (layer(x) - 3.0).square().mean().backward()
        optimizer.step()
        layer.observe(x)
    assert float(layer.bias.detach().min()) > 0.05
    layer.fit()
    layer.eval()
    other = torch.cat([x[:16], cloud(48, 8, seed=3, mean=90.0, dtype=torch.float32)])
    assert torch.equal(layer(other)[:16], layer(x)[:16])
    twin = BatchNorm(8, stats=stats, queue_rows=512)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.eval()(x), layer(x))
    assert torch.equal(twin.train()(x), layer.train()(x))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"stats": "running"}, "stats must be batch or queue"),
    ],
)
def test_errors_name_the_option(options, words):
    with pytest.raises(ValueError, match=words):
        BatchNorm(**{"width": 8, **options})
