"""The iteration against ZCA, its full gradient against finite differences. N rows, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.iter_norm import IterNorm
from isotrain.transforms.zca import ZCA

light = settings(max_examples=25)


def estimate(x, *args, **options):
    """The layer's statistics of a cloud."""
    return IterNorm(x.shape[1], *args, **options).estimate(x)


def cloud(n, d, seed=0, mean=0.0, dtype=torch.float64, decay=0.8):
    generator = torch.Generator().manual_seed(seed)
    scale_D = 3.0 * decay ** torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return (x @ axes + mean).to(dtype)


@pytest.mark.parametrize(("n", "d"), [(2, 5), (32, 64), (64, 64), (300, 64), (40, 1)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("keep_scale", [True, False])
def test_one_group_is_zca(n, d, epsilon, keep_scale):
    x = cloud(n, d, mean=1.0, dtype=torch.float32, decay=0.95)
    layer = IterNorm(d, epsilon, group_size=None, keep_scale=keep_scale, stats="batch")
    expected = ZCA(d, epsilon, keep_scale, stats="batch")(x)
    assert float((layer(x) - expected).norm() / expected.norm()) < 1e-5
    assert float((layer(x) - expected).abs().max()) < 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("n", "d"), [(32, 64), (300, 64), (32, 256)])
def test_a_steep_spectrum_in_float32_costs_no_more_than_the_eigenproblem_does(n, d):
    x = cloud(n, d, mean=1.0)
    exact = ZCA(d, stats="batch")(x)
    by_eigh = ZCA(d, stats="batch")(x.float()) - exact
    by_iteration = IterNorm(d, group_size=None, stats="batch")(x.float()) - exact
    assert float(by_iteration.norm()) < 2.0 * float(by_eigh.norm())
    assert float(by_iteration.norm() / exact.norm()) < 1e-4


@pytest.mark.parametrize("decay", [1.0, 0.9, 0.5])
def test_the_default_iterations_are_enough_for_any_spectrum(decay):
    x = cloud(32, 256, decay=decay)
    found = estimate(x).matrix_DD
    whole = estimate(x, group_size=256).matrix_DD
    torch.testing.assert_close(whole, ZCA(256).estimate(x).matrix_DD, atol=1e-8, rtol=0)
    assert bool(found.isfinite().all())


def test_groups_of_dimensions_are_zca_inside_each():
    x = cloud(100, 12)
    y = IterNorm(12, epsilon=0.01, group_size=4, n_iterations=30, stats="batch")(x)
    floor = 0.01 * np.trace(np.cov(x.numpy(), rowvar=False)) / 12
    for start in (0, 4, 8):
        points = x[:, start : start + 4].numpy()
        value, vector = np.linalg.eigh(np.cov(points, rowvar=False))
        matrix = (vector * ((value + floor) / (floor * 100)) ** -0.5) @ vector.T
        expected = torch.from_numpy((points - points.mean(axis=0)) @ matrix)
        torch.testing.assert_close(y[:, start : start + 4], expected)


def test_little_epsilon_gives_the_identity_covariance():
    x = cloud(60, 6, mean=5.0)
    layer = IterNorm(6, epsilon=1e-12, n_iterations=40, keep_scale=False, stats="batch")
    torch.testing.assert_close(torch.cov(layer(x).T), torch.eye(6).double(), atol=1e-10, rtol=0)


@given(st.integers(2, 20), st.sampled_from([1, 2, 3, 6]), st.integers(0, 10_000))
@light
def test_the_matrix_is_symmetric_positive_in_any_group_size(n, size, seed):
    matrix_DD = estimate(cloud(n, 6, seed), group_size=size).matrix_DD
    torch.testing.assert_close(matrix_DD, matrix_DD.T)
    assert float(torch.linalg.eigvalsh(matrix_DD).min()) > 0.0


# --- gradient ---------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_scale", [True, False])
@pytest.mark.parametrize("n", [3, 7])
def test_the_full_gradient_is_that_of_finite_differences(n, keep_scale):
    layer = IterNorm(4, group_size=2, keep_scale=keep_scale, stats="batch")
    assert torch.autograd.gradcheck(layer, cloud(n, 4, mean=1.0).requires_grad_())


def test_the_full_gradient_is_finite_and_right_with_repeated_eigenvalues():
    """Where the backward of `eigh` has none: a cross of 2·D rows, all eigenvalues equal."""
    x = torch.cat([torch.eye(4), -torch.eye(4)]).double().requires_grad_()
    layer = IterNorm(4, group_size=None, stats="batch")
    assert torch.autograd.gradcheck(layer, x)


def test_with_a_queue_that_repeats_the_batch_the_gradient_is_that_of_the_batch():
    x, upstream = cloud(6, 4, seed=2).requires_grad_(), cloud(6, 4, seed=3)
    queue, batch = IterNorm(4, stats="queue").double(), IterNorm(4, stats="batch").double()
    for _ in range(3):
        queue.observe(x)
    (expected,) = torch.autograd.grad(batch(x), x, upstream)
    (found,) = torch.autograd.grad(queue(x), x, upstream)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)  # the queue is float32


def test_the_full_gradient_is_blind_to_a_common_factor():
    x = cloud(40, 6).requires_grad_()
    layer = IterNorm(6, keep_scale=False, stats="batch")
    (gradient,) = torch.autograd.grad((layer(x) * cloud(40, 6, seed=1)).sum(), x)
    # Growing or shifting all rows together changes nothing: ε is relative to λ̄.
    centred = x.detach() - x.detach().mean(dim=0)
    assert abs(float((gradient * centred).sum())) < 1e-10
    assert float(gradient.sum(dim=0).abs().max()) < 1e-10


def test_the_detached_gradient_is_that_of_zca():
    x, upstream = cloud(40, 6).requires_grad_(), cloud(40, 6, seed=1)
    IterNorm(6, grad="detach", stats="batch")(x).backward(upstream)
    matrix_DD = estimate(x.detach()).matrix_DD
    torch.testing.assert_close(x.grad, (upstream - upstream.mean(dim=0)) @ matrix_DD)
    full = x.detach().clone().requires_grad_()
    IterNorm(6, stats="batch")(full).backward(upstream)
    assert float((full.grad - x.grad).norm() / x.grad.norm()) > 0.05
