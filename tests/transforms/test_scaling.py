"""Layers that act on each dimension: BatchNorm, Standardize, IsoBn, CutTails. N, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from isotrain.transforms.batch_norm import BatchNorm
from isotrain.transforms.cut_tails import CutTails, CutTailsStats
from isotrain.transforms.iso_bn import IsoBn
from isotrain.transforms.standardize import Standardize
from tests.clouds import correlated, normal

light = settings(max_examples=25)
shapes = pytest.mark.parametrize(("n", "d"), [(2, 3), (50, 8), (16, 40)])
sizes = (st.integers(2, 40), st.integers(1, 12), st.integers(0, 10_000))


def cloud(n, d, seed=0, mean=2.0, dtype=torch.float64):
    """Correlated dimensions of unequal variance."""
    scale_D = torch.linspace(0.2, 3.0, d, dtype=torch.float64)
    return (correlated(n, d, seed, decay=0.95) * scale_D + mean).to(dtype)


def with_tails(n, d, seed=0):
    """Isotropic, but for dimension 1 far from zero and dimension 4 that varies most."""
    x = normal(n, d, seed=seed, mean=0.0)
    x[:, 1] -= 20.0
    x[:, 4] *= 6.0
    return x


def rms_norm(x):
    return x.square().sum(dim=1).mean().sqrt()


# --- BatchNorm --------------------------------------------------------------------------------


def batch_norms(d, **options):
    """The layer and torch's, with the same weights."""
    ours = BatchNorm(d, **options).double()
    theirs = torch.nn.BatchNorm1d(d).double()
    with torch.no_grad():
        for seed, parameter in enumerate(theirs.parameters()):
            parameter.copy_(normal(d, seed=seed))
    theirs_state = dict(theirs.named_parameters())
    ours.load_state_dict(ours.state_dict() | theirs_state)
    return ours, theirs


@shapes
def test_batch_norm_in_training_is_torchs_with_all_gradients(n, d):
    upstream, found = normal(n, d, seed=1), []
    for layer in batch_norms(d):
        x = cloud(n, d).requires_grad_()
        y = layer(x)
        y.backward(upstream)
        found.append([y.detach(), x.grad, *(p.grad for p in layer.parameters())])
    assert len(found[0]) == 4
    for mine, reference in zip(*found, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-9, rtol=1e-9)


def test_batch_norm_in_float32_is_torchs():
    x = cloud(64, 16, dtype=torch.float32)
    torch.testing.assert_close(BatchNorm(16)(x), torch.nn.BatchNorm1d(16)(x), atol=1e-6, rtol=0)


def test_equal_embeddings_pass_batch_norm_without_weight_and_bias():
    layer, _ = batch_norms(12)
    x = cloud(1, 12).repeat(8, 1).requires_grad_()
    y = layer(x)
    assert torch.equal(y, x)
    y.sum().backward()
    assert bool((layer.weight.grad == 0.0).all())  # there, for processes that wait for it


def test_batch_norm_freezes_statistics_of_the_whole_queue_not_running_means():
    layer, theirs = batch_norms(6, queue_rows=512)
    parts = [cloud(32, 6, seed=s, mean=float(s)) for s in range(4)]  # means drift between batches
    for part in parts:
        layer(part)
        layer.observe(part)
    layer.fit()
    new, x = cloud(10, 6, seed=9), torch.cat(parts)
    theirs.running_mean.copy_(x.mean(dim=0))
    theirs.running_var.copy_(x.var(dim=0, correction=0))
    torch.testing.assert_close(layer.eval()(new), theirs.eval()(new))


# --- Standardize ------------------------------------------------------------------------------


@shapes
def test_standardize_is_scikit_learns(n, d):
    x = cloud(n, d)
    y = Standardize(d, epsilon=1e-14, keep_scale=False, stats="batch")(x)
    expected = torch.from_numpy(StandardScaler().fit_transform(x.numpy()))
    torch.testing.assert_close(y, expected, atol=1e-9, rtol=0)


def test_epsilon_is_a_part_of_the_mean_variance():
    x = torch.tensor([[-1.0, 7.0], [1.0, 7.0]], dtype=torch.float64)  # variances 1 and 0
    y = Standardize(2, epsilon=6.0, keep_scale=False, stats="batch")(x)  # 1 + 6·½ = 2²
    torch.testing.assert_close(y, torch.tensor([[-0.5, 0.0], [0.5, 0.0]], dtype=torch.float64))


@given(*sizes, st.floats(1e-3, 1e3))
@light
def test_standardize_keeps_the_rms_norm_and_uniform_scale_goes_through(n, d, seed, scale):
    x, layer = cloud(n, d, seed), Standardize(d, stats="batch")
    y = layer(x)
    torch.testing.assert_close(rms_norm(y), rms_norm(x))
    torch.testing.assert_close(layer(scale * x), scale * y)
    torch.testing.assert_close(y.mean(dim=0) / rms_norm(y), torch.zeros(d, dtype=torch.float64))
    plain = Standardize(d, keep_scale=False, stats="batch")(x)
    torch.testing.assert_close(y, plain * rms_norm(x) / rms_norm(plain))


@pytest.mark.parametrize("mean", [30.0, 1e4])
def test_standardize_in_float32_with_a_large_mean(mean):
    x = cloud(256, 16, mean=mean, dtype=torch.float32)
    layer = Standardize(16, keep_scale=False, stats="batch")
    assert float((layer(x).double() - layer(x.double())).abs().max()) < 1e-6 * mean
    x[:, 2] = 1234.567  # varies by rounding at most
    assert float(layer(x)[:, 2].abs().max()) < 0.05


def test_scatter_too_small_to_square_passes():
    x = 1e-30 * cloud(8, 4, dtype=torch.float32)
    assert torch.equal(Standardize(4, stats="batch")(x), x)


def test_the_gradient_of_standardize_is_centred_and_scaled():
    x, upstream = cloud(16, 5).requires_grad_(), normal(16, 5, seed=1)
    Standardize(5, stats="batch")(x).backward(upstream)
    factor_D = Standardize(5).estimate(x.detach()).factor_D
    torch.testing.assert_close(x.grad, (upstream - upstream.mean(dim=0)) * factor_D)


# --- IsoBn ------------------------------------------------------------------------------------


def scale_of(x, **options):
    return IsoBn(x.shape[1], **options).estimate(x).scale_D


def slow_iso_bn(x, beta, epsilon):
    """Zhou, Lin and Ren 2021, dimension by dimension."""
    points = x.double().numpy()
    sd, rho = points.std(axis=0), np.corrcoef(points, rowvar=False)
    gamma = (rho**2).mean(axis=1)
    scale = np.array(
        [(g * s + epsilon * sd.mean()) ** -beta for g, s in zip(gamma, sd, strict=True)]
    )
    return torch.from_numpy(scale * np.sqrt((sd**2).sum() / (sd**2 * scale**2).sum()))


@shapes
@pytest.mark.parametrize(("beta", "epsilon"), [(0.5, 1e-3), (1.0, 0.1), (0.25, 1e-6)])
def test_iso_bn_is_the_published_formula(n, d, beta, epsilon):
    x = cloud(n, d).requires_grad_()
    scale_D, upstream = slow_iso_bn(x.detach(), beta, epsilon), normal(n, d, seed=1)
    y = IsoBn(d, beta=beta, epsilon=epsilon, stats="batch")(x)
    torch.testing.assert_close(y, x * scale_D)
    y.backward(upstream)  # the scale is a constant
    torch.testing.assert_close(x.grad, upstream * scale_D)


@given(*sizes, st.floats(1e-3, 1e3))
@light
def test_iso_bn_keeps_the_total_variance_and_uniform_scale_goes_through(n, d, seed, scale):
    x, layer = cloud(n, d, seed), IsoBn(d, stats="batch")
    y = layer(x)
    torch.testing.assert_close(*(z.var(dim=0, correction=0).sum() for z in (x, y)))
    torch.testing.assert_close(layer(scale * x), scale * y)
    torch.testing.assert_close(scale_of(x + 5.0), scale_of(x))


def test_iso_bn_of_a_dimension_that_does_not_vary_is_finite_and_changes_no_other():
    x = cloud(64, 6, dtype=torch.float32)
    x[:, 2] = 0.0
    scale_D = scale_of(x)
    assert bool(torch.isfinite(scale_D).all())
    assert scale_D.argmax() == 2
    x[:, 2] = 1234.567  # varies by rounding at most
    torch.testing.assert_close(scale_of(x), scale_D, rtol=2e-2, atol=0)


# --- CutTails ---------------------------------------------------------------------------------


def slow_cut_tails(x, clip_sd, threshold, factor):
    points = x.numpy().copy()
    mean, variance = points.mean(axis=0), points.var(axis=0)
    rms = np.sqrt((points**2).mean())
    cut = (abs(mean) > threshold * rms) | (variance > factor * variance.mean())
    bound = clip_sd * np.sqrt((points[:, ~cut] ** 2).mean())
    points[:, cut] = np.clip(points[:, cut], -bound, bound)
    return torch.from_numpy(points), cut.nonzero()[0].tolist()


@pytest.mark.parametrize(("n", "d"), [(16, 40), (64, 64), (300, 24)])
@pytest.mark.parametrize(
    ("rules", "expected"),
    [((3.0, 3.0, 5.0), [1, 4]), ((2.0, 3.0, 1e9), [1]), ((0.0, 1e9, 5.0), [4])],
)
def test_cut_tails_is_numpys_and_each_rule_finds_its_dimension(n, d, rules, expected):
    x = with_tails(n, d, seed=n)
    options = dict(zip(("clip_sd", "threshold", "variance_factor"), rules, strict=True))
    layer = CutTails(d, stats="batch", **({} if expected == [1, 4] else options))
    result, cut = slow_cut_tails(x, *rules)
    assert cut == expected
    torch.testing.assert_close(layer(x), result)
    assert layer.counters["dims_cut"].item() == len(cut)


def test_given_dimensions_are_cut_and_no_others():
    x = with_tails(32, 8)
    y = CutTails(8, dims=[0, 7], clip_sd=0.0, stats="batch")(x)
    assert torch.equal(y[:, 1:7], x[:, 1:7])
    assert bool((y[:, [0, 7]] == 0.0).all())
    nothing = CutTails(8, dims=[], stats="batch")
    assert torch.equal(nothing(x), x)
    equal, layer = x[:1].repeat(8, 1), CutTails(8, dims=[1], clip_sd=0.0, stats="batch")
    assert torch.equal(layer(equal), equal)
    assert (nothing.counters["dims_cut"], layer.counters["dims_cut"]) == (0, 0)


@given(*sizes, st.floats(2.0, 4.0))
@light
def test_something_is_always_left_and_uniform_scale_goes_through(n, d, seed, factor):
    x = normal(n, d, seed=seed, mean=1.0) * 10.0 ** normal(d, seed=seed + 1, mean=0.0)
    layer = CutTails(d, stats="batch", threshold=2.0, variance_factor=factor)
    cut_D, y = layer.estimate(x).cut_D, layer(x)
    assert int(cut_D.sum()) < d
    assert bool((y.abs() <= x.abs()).all())
    assert torch.equal(y[:, ~cut_D], x[:, ~cut_D])
    torch.testing.assert_close(layer(8.0 * x), 8.0 * y)


def test_isotropic_embeddings_keep_all_their_dimensions():
    x, layer = normal(512, 256, mean=0.0), CutTails(256, stats="batch")
    assert torch.equal(layer(x), x)


@pytest.mark.parametrize("clip_sd", [3.0, 0.0])
def test_the_gradient_passes_where_the_coordinate_was_left(clip_sd):
    x, upstream = with_tails(16, 40), normal(16, 40, seed=1)
    x[0] = 0.0  # a coordinate that is zero already is zeroed all the same
    y = CutTails(40, clip_sd=clip_sd, stats="batch")(x.requires_grad_())
    y.backward(upstream)
    left = x.detach() == y.detach()
    left[:, [1, 4]] &= clip_sd > 0.0
    assert torch.equal(x.grad, upstream * left)


@pytest.mark.parametrize("bound", [0.0, 2.0])
def test_gradcheck_of_the_cut(bound):
    cut_D = torch.tensor([False, True, False, False, True])
    stats = CutTailsStats(cut_D, torch.tensor(bound).double(), {})
    cut = CutTails(5).transform
    x = with_tails(6, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: cut(rows, stats, False), x)
