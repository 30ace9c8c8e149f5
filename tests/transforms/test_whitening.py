"""ZCA, PCA, group and iterated whitening against NumPy and scikit-learn. N, D, R directions."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.group_whitening import GroupWhitening
from isotrain.transforms.iter_norm import IterNorm
from isotrain.transforms.spectral_temper import SpectralTemper
from isotrain.transforms.whitening import Whitening
from isotrain.transforms.zca import ZCA
from tests.clouds import correlated as cloud
from tests.clouds import with_a_flat_tail

light = settings(max_examples=25)


def matrix_of(kind, x, **options):
    return kind(x.shape[1], **options).estimate(x).matrix_DD


def slow_zca(x, order, size, epsilon, keep_scale=True):
    """Permute, whiten each group with NumPy, put back; λ̄ is that of all dimensions."""
    points = x.double().numpy()
    mean_value = points.var(axis=0, ddof=1).mean()
    out = np.empty_like(points)
    for group in np.split(np.asarray(order), points.shape[1] // size):
        rows = points[:, group] - points[:, group].mean(axis=0)
        value, vector = np.linalg.eigh(np.atleast_2d(np.cov(rows, rowvar=False)))
        factor = (value + epsilon * mean_value) ** -0.5
        out[:, group] = rows @ ((vector * factor) @ vector.T)
    return torch.from_numpy(out * (mean_value**0.5 if keep_scale else 1.0))


@pytest.mark.parametrize("keep_scale", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 6), (16, 42), (42, 42), (100, 6)])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 2.0])
@pytest.mark.parametrize("size", [1, 3, None])
def test_zca_and_groups_are_numpys(n, d, epsilon, keep_scale, size):
    x = cloud(n, d, mean=4.0)
    layer = GroupWhitening(d, epsilon, size, keep_scale, stats="batch", seed=n)
    expected = slow_zca(x, layer.order_D.tolist(), size or d, epsilon, keep_scale)
    torch.testing.assert_close(layer(x), expected, atol=1e-8, rtol=0)
    if size is None:
        y = ZCA(d, epsilon, keep_scale, stats="batch")(x)
        torch.testing.assert_close(y, expected, atol=1e-8, rtol=0)


def test_without_epsilon_zca_is_scikit_learns_whitening_turned_back():
    x = cloud(200, 10, mean=-2.0)
    model = PCA(whiten=True).fit(x.numpy())
    expected = torch.from_numpy(model.transform(x.numpy()) @ model.components_)
    y = ZCA(10, epsilon=0.0, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(y, expected)
    assert torch.equal(matrix_of(ZCA, x), matrix_of(ZCA, x, epsilon=0.1, keep_scale=True))


@pytest.mark.parametrize("r", [1, 3, 8])
def test_pca_whitening_is_scikit_learns_but_for_signs(r):
    x = cloud(100, 8, mean=3.0)
    expected = torch.from_numpy(PCA(n_components=r, whiten=True).fit_transform(x.numpy()))
    y = Whitening(8, epsilon=0.0, n_components=r, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(y[:, :r].abs(), expected.abs(), atol=1e-9, rtol=0)
    assert not y[:, r:].any()


@pytest.mark.parametrize(("n", "d"), [(3, 7), (7, 7), (80, 7)])
def test_variances_of_pca_whitening_are_the_soft_ones_in_falling_order(n, d):
    x = cloud(n, d)
    value_D = torch.linalg.eigvalsh(torch.cov(x.T)).flip(0)
    y = Whitening(d, epsilon=0.3, stats="batch")(x)
    expected = torch.diag(value_D.mean() * value_D / (value_D + 0.3 * value_D.mean()))
    torch.testing.assert_close(torch.cov(y.T), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("d", [1, 6, 50])
@pytest.mark.parametrize("kind", [ZCA, Whitening, GroupWhitening])
def test_full_whitening_gives_the_identity_covariance(kind, d):
    x = cloud(60, d, mean=5.0, decay=0.97)
    options = {"group_size": None} if kind is GroupWhitening else {}
    y = kind(d, epsilon=0.0, keep_scale=False, stats="batch", **options)(x)
    torch.testing.assert_close(torch.cov(y.T), torch.eye(d).double().squeeze(), atol=1e-9, rtol=0)


@given(st.integers(2, 30), st.integers(1, 10), st.floats(1e-3, 1e3), st.integers(0, 10_000))
@light
def test_what_whitening_ignores_and_follows(n, d, factor, seed):
    """Shifts go, factors stay, rotations commute with ZCA; cosines and signs of PCA whitening."""
    x = cloud(n, d, seed)
    zca, pca = ZCA(d, stats="batch"), Whitening(d, stats="batch")
    axes = torch.linalg.qr(cloud(d, d, seed + 1))[0]
    found, expected = zca(factor * (x + 7.0) @ axes), factor * zca(x) @ axes
    torch.testing.assert_close(found, expected, atol=1e-7 * factor, rtol=1e-7)
    y, z = pca(x), zca(x)
    torch.testing.assert_close(y @ y.T, z @ z.T, atol=1e-7, rtol=1e-7)
    again = pca(factor * x + 5.0) / factor
    torch.testing.assert_close(again.abs(), y.abs(), atol=1e-6, rtol=1e-6)


def test_signs_do_not_depend_on_the_order_of_embeddings():
    x = cloud(50, 6)
    found = matrix_of(Whitening, x.flip(0))
    torch.testing.assert_close(found, matrix_of(Whitening, x), atol=1e-9, rtol=0)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_directions_without_variance_have_the_factor_of_epsilon_or_none(epsilon):
    x = torch.zeros(8, 12, dtype=torch.float64)
    x[:, :4] = cloud(8, 4)
    matrix_DD = matrix_of(ZCA, x, epsilon=epsilon)
    expected = (epsilon**-0.5 if epsilon else 0.0) * torch.eye(8, dtype=torch.float64)
    torch.testing.assert_close(matrix_DD[4:, 4:], expected, atol=1e-9, rtol=0)
    assert float(matrix_DD[:4, 4:].abs().max()) < 1e-9


def test_a_batch_below_the_width_keeps_its_scale_in_groups():
    """N = 32 of D = 64: whole ZCA loses half of the energy, groups of 8 hardly any."""
    x = cloud(32, 64)
    energy = float((x - x.mean(dim=0)).square().sum())
    groups = GroupWhitening(64, epsilon=0.0, stats="batch")(x)
    whole = ZCA(64, epsilon=0.0, stats="batch")(x)
    assert float(groups.square().sum()) / energy == pytest.approx(1.0, abs=1e-9)
    assert float(whole.square().sum()) / energy == pytest.approx(31 / 64, abs=1e-6)


@given(st.integers(2, 20), st.sampled_from([1, 2, 3, 6]), st.integers(0, 10_000))
@light
def test_matrices_are_symmetric_positive_and_groups_follow_their_order(n, size, seed):
    x = cloud(n, 6, seed)
    layer = GroupWhitening(6, group_size=size, seed=seed)
    order_D, stats = layer.order_D.clone(), layer.estimate(x)
    for matrix_DD in (stats.matrix_DD, matrix_of(IterNorm, x, group_size=size)):
        torch.testing.assert_close(matrix_DD, matrix_DD.T)
        assert float(torch.linalg.eigvalsh(matrix_DD).min()) > 0.0
    # Dimensions permuted beforehand, in their own order: the same map.
    layer.order_D.copy_(torch.arange(6))
    turned = apply_whitening(x[:, order_D], layer.estimate(x[:, order_D]))
    torch.testing.assert_close(apply_whitening(x, stats)[:, order_D], turned)


def test_the_seed_draws_the_shuffle_and_a_checkpoint_keeps_it():
    one, other, again = (GroupWhitening(16, seed=seed) for seed in (1, 2, 1))
    assert torch.equal(one.order_D, again.order_D)
    assert not torch.equal(one.order_D, other.order_D)
    assert one.order_D.sort().values.tolist() == list(range(16))
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(cloud(30, 16)), one(cloud(30, 16)))
    assert one.to(torch.bfloat16).order_D.dtype == torch.int64


@pytest.mark.parametrize("mean", [0.0, 30.0, 1e3])
def test_float32_is_close_to_float64(mean):
    x, layer = cloud(256, 32, mean=mean, dtype=torch.float32), ZCA(32, stats="batch")
    assert float((layer(x).double() - layer(x.double())).abs().max()) < 1e-5 * max(mean, 10.0)


@pytest.mark.parametrize("n", [6, 40])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ZCA, {}),
        (Whitening, {"n_components": 3}),
        (GroupWhitening, {"group_size": 4}),
        (SpectralTemper, {}),
    ],
)
def test_the_gradient_runs_through_the_embeddings_and_their_mean(kind, options, n):
    x, upstream = cloud(n, 8).requires_grad_(), cloud(n, 8, seed=1)
    kind(8, stats="batch", **options)(x).backward(upstream)
    matrix_DD = matrix_of(kind, x.detach(), **options)
    torch.testing.assert_close(x.grad, (upstream - upstream.mean(dim=0)) @ matrix_DD.T)


def followed(layer, x, size=32):
    """The layer after it observed the embeddings, in batches."""
    for part in x.split(size):
        layer.observe(part)
    return layer


@pytest.mark.parametrize("r", [5, 12, 40])
@pytest.mark.parametrize("n", [30, 200])
def test_axes_that_follow_turn_the_coordinates_and_nothing_else(r, n):
    x, former = cloud(n, 40, mean=2.0), cloud(300, 40, seed=1)
    plain = Whitening(40, n_components=r, stats="batch").double()
    layer = followed(deepcopy(plain), former)
    y, expected = layer(x), plain(x)
    assert not torch.allclose(y, expected, atol=0.1)
    torch.testing.assert_close(y @ y.T, expected @ expected.T, atol=1e-8, rtol=0)
    axes_DR = layer.axes_DR
    torch.testing.assert_close(axes_DR.T @ axes_DR, torch.eye(r).double(), atol=1e-9, rtol=0)
    # Nearest to the axes: Qᵀ·(Uᵀ·axes) is symmetric and has no negative eigenvalue.
    plain_DS, turned_DR = (one.estimate(x).matrix_DD[:, :r] for one in (plain, layer))
    plain_DS = plain_DS[:, plain_DS.any(dim=0)]
    overlap_SR = (plain_DS / plain_DS.norm(dim=0)).T @ axes_DR
    near_RR = (torch.linalg.pinv(plain_DS) @ turned_DR).T @ overlap_SR
    torch.testing.assert_close(near_RR, near_RR.T, atol=1e-7, rtol=0)
    assert float(torch.linalg.eigvalsh(near_RR).min()) > -1e-7


@pytest.mark.parametrize("r", [8, 64])
def test_one_step_of_axes_training_and_frozen_maps_agree(r):
    """Of `observe`, `fit()`, and `fit(x)` before, after or without it."""
    x, probe = with_a_flat_tail(2000, 64), with_a_flat_tail(100, 64, seed=1)
    x[:, :2] *= 4.0  # a gap below the eighth direction
    first = Whitening(64, n_components=r)
    first.fit(x[:500])
    outputs = [first.eval()(probe)]
    first.train()
    followed(first, x[500:])
    outputs.append(first.train()(probe))
    for known in ((), (x[:1000],)):
        first.fit(*known)
        outputs.append(first.eval()(probe))
    for y in outputs[1:]:
        assert float(torch.cosine_similarity(outputs[0], y).mean()) > 0.9


def test_given_embeddings_turn_no_axes_that_are_known():
    """A refit for an evaluation must leave the coordinates that the head was trained on."""
    layer = followed(Whitening(40, n_components=5).double(), cloud(300, 40, seed=1))
    axes_DR = layer.axes_DR.clone()
    layer.fit(cloud(200, 40, seed=2))
    assert torch.equal(layer.axes_DR, axes_DR)


# --- IterNorm ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(2, 5), (32, 64), (64, 64), (300, 64), (40, 1)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("keep_scale", [True, False])
def test_iter_norm_of_one_group_is_zca(n, d, epsilon, keep_scale):
    x = cloud(n, d, mean=1.0, dtype=torch.float32, decay=0.95)
    y = IterNorm(d, epsilon, group_size=None, keep_scale=keep_scale, stats="batch")(x)
    expected = ZCA(d, epsilon, keep_scale, stats="batch")(x)
    assert float((y - expected).norm() / expected.norm()) < 1e-5
    assert float((y - expected).abs().max()) < 1e-5 * max(1.0, float(expected.abs().max()))


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
    whole = matrix_of(IterNorm, x, group_size=256)
    torch.testing.assert_close(whole, matrix_of(ZCA, x), atol=1e-8, rtol=0)
    assert bool(matrix_of(IterNorm, x).isfinite().all())


def test_iter_norm_of_groups_is_zca_inside_each():
    x = cloud(100, 12)
    y = IterNorm(12, epsilon=0.01, group_size=4, n_iterations=30, stats="batch")(x)
    torch.testing.assert_close(y, slow_zca(x, range(12), 4, 0.01))


@pytest.mark.parametrize("keep_scale", [True, False])
@pytest.mark.parametrize("n", [3, 7])
def test_the_full_gradient_is_that_of_finite_differences(n, keep_scale):
    layer = IterNorm(4, group_size=2, keep_scale=keep_scale, stats="batch")
    assert torch.autograd.gradcheck(layer, cloud(n, 4, mean=1.0).requires_grad_())


def test_the_full_gradient_is_right_with_repeated_eigenvalues():
    """Where the backward of `eigh` has none: a cross of 2·D points, all eigenvalues equal."""
    x = torch.cat([torch.eye(4), -torch.eye(4)]).double().requires_grad_()
    assert torch.autograd.gradcheck(IterNorm(4, group_size=None, stats="batch"), x)


def test_with_a_queue_that_repeats_the_batch_the_gradient_is_that_of_the_batch():
    x, upstream = cloud(6, 4, seed=2).requires_grad_(), cloud(6, 4, seed=3)
    queue, batch = IterNorm(4, stats="queue").double(), IterNorm(4, stats="batch").double()
    for _ in range(3):
        queue.observe(x)
    expected, found = (torch.autograd.grad(layer(x), x, upstream)[0] for layer in (batch, queue))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)  # the queue is float32
