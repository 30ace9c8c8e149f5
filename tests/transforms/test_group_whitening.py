"""Shuffled group whitening against NumPy. N rows, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.group_whitening import GroupWhitening
from isotrain.transforms.zca import ZCA

light = settings(max_examples=25)


def cloud(n, d, seed=0, mean=0.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scale_D = 3.0 * 0.8 ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return (x @ axes + mean).to(dtype)


def slow_groups(x, order, size, epsilon):
    """Permute, whiten each group with NumPy, put back."""
    points = x.numpy()
    mean_value = np.trace(np.atleast_2d(np.cov(points, rowvar=False))) / points.shape[1]
    out = np.empty_like(points)
    for group in np.split(np.asarray(order), points.shape[1] // size):
        rows = points[:, group] - points[:, group].mean(axis=0)
        value, vector = np.linalg.eigh(np.atleast_2d(np.cov(rows, rowvar=False)))
        factor = (mean_value / (value + epsilon * mean_value)) ** 0.5
        out[:, group] = rows @ ((vector * factor) @ vector.T)
    return torch.from_numpy(out)


@pytest.mark.parametrize("size", [1, 3, 4, 12])
@pytest.mark.parametrize("n", [3, 12, 80])
@pytest.mark.parametrize("epsilon", [0.01, 0.5])
def test_equals_numpy(n, size, epsilon):
    x = cloud(n, 12, mean=2.0)
    layer = GroupWhitening(12, epsilon, size, stats="batch", seed=n)
    expected = slow_groups(x, layer.order_D.tolist(), size, epsilon)
    torch.testing.assert_close(layer(x), expected, atol=1e-9, rtol=0)


def test_one_group_is_zca():
    x = cloud(40, 8)
    y = GroupWhitening(8, group_size=None, stats="batch")(x)
    torch.testing.assert_close(y, ZCA(8, stats="batch")(x))


def test_full_whitening_gives_the_identity_covariance_inside_groups():
    x = cloud(60, 12, mean=5.0)
    layer = GroupWhitening(12, epsilon=0.0, group_size=4, keep_scale=False, stats="batch")
    order_D = layer.order_D
    covariance_DD = torch.cov(layer(x).T)[order_D][:, order_D]
    for start in (0, 4, 8):
        own = slice(start, start + 4)
        torch.testing.assert_close(
            covariance_DD[own, own], torch.eye(4).double(), atol=1e-10, rtol=0
        )
    assert float(covariance_DD[:4, 4:].abs().max()) > 0.01


def test_groups_of_one_are_the_z_score():
    x = cloud(60, 12, mean=5.0)
    layer = GroupWhitening(12, epsilon=0.0, group_size=1, keep_scale=False, stats="batch")
    torch.testing.assert_close(layer(x), (x - x.mean(dim=0)) / x.std(dim=0))


def test_a_batch_below_the_width_keeps_its_scale():
    """32 rows of 64: whole ZCA loses half of the energy, groups of 8 hardly any."""
    x = cloud(32, 64)
    energy = float((x - x.mean(dim=0)).square().sum())
    groups = GroupWhitening(64, epsilon=0.0, stats="batch")(x)
    whole = ZCA(64, epsilon=0.0, stats="batch")(x)
    assert float(groups.square().sum()) / energy == pytest.approx(1.0, abs=1e-9)
    assert float(whole.square().sum()) / energy == pytest.approx(31 / 64, abs=1e-6)


@given(st.integers(2, 20), st.sampled_from([1, 2, 3, 6]), st.integers(0, 10_000))
@light
def test_the_matrix_is_symmetric_positive_and_follows_the_order(n, size, seed):
    x = cloud(n, 6, seed)
    layer = GroupWhitening(6, group_size=size, seed=seed)
    order_D, stats = layer.order_D.clone(), layer.estimate(x)
    torch.testing.assert_close(stats.matrix_DD, stats.matrix_DD.T)
    assert float(torch.linalg.eigvalsh(stats.matrix_DD).min()) > 0.0
    # Dimensions permuted beforehand, in their own order: the same map.
    layer.order_D.copy_(torch.arange(6))
    turned = layer.estimate(x[:, order_D])
    expected = apply_whitening(x[:, order_D], turned)
    torch.testing.assert_close(apply_whitening(x, stats)[:, order_D], expected)


def test_the_seed_draws_the_shuffle_and_a_checkpoint_keeps_it():
    one, other = GroupWhitening(16, seed=1), GroupWhitening(16, seed=2)
    assert torch.equal(one.order_D, GroupWhitening(16, seed=1).order_D)
    assert not torch.equal(one.order_D, other.order_D)
    assert one.order_D.sort().values.tolist() == list(range(16))
    other.load_state_dict(one.state_dict())
    x = cloud(30, 16)
    assert torch.equal(other(x), one(x))
    assert one.to(torch.bfloat16).order_D.dtype == torch.int64


def test_the_gradient_runs_through_the_rows_and_their_mean():
    x, upstream = cloud(40, 8).requires_grad_(), cloud(40, 8, seed=1)
    layer = GroupWhitening(8, group_size=4, stats="batch")
    layer(x).backward(upstream)
    matrix_DD = layer.estimate(x.detach()).matrix_DD
    torch.testing.assert_close(x.grad, (upstream - upstream.mean(dim=0)) @ matrix_DD)
