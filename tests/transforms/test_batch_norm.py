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


def test_gradcheck_of_training():
    layer, _ = pair(3, stats="batch")
    assert torch.autograd.gradcheck(layer, cloud(5, 3).requires_grad_())


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
