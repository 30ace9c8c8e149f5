"""CutTails against NumPy, closed forms of its gradient, and its contract. N rows, D width."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.cut_tails import CutTails, CutTailsStats

light = settings(max_examples=25)


def estimate(x, *args, **options):
    """The layer's statistics of a cloud."""
    return CutTails(x.shape[1], *args, **options).estimate(x)


def cloud(n, d, seed=0, dtype=torch.float64, tails=True):
    """Isotropic rows; with tails, dimension 1 is far from zero and dimension 4 varies most."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    if tails:
        x[:, 1] -= 20.0
        x[:, 4] *= 6.0
    return x.to(dtype)


def reference(x, mode, clip_sd=3.0, threshold=3.0, factor=3.0):
    points = x.double().numpy().copy()
    mean, variance = points.mean(axis=0), points.var(axis=0)
    rms = np.sqrt((points**2).mean())
    cut = [
        i
        for i in range(points.shape[1])
        if abs(mean[i]) > threshold * rms or variance[i] > factor * variance.mean()
    ]
    bulk = np.delete(points, cut, axis=1)
    bound = clip_sd * np.sqrt((bulk**2).mean()) if mode == "clip" else 0.0
    for i in cut:
        points[:, i] = np.clip(points[:, i], -bound, bound)
    return torch.from_numpy(points), cut


@pytest.mark.parametrize("mode", ["clip", "zero"])
@pytest.mark.parametrize(("n", "d"), [(16, 40), (64, 64), (300, 24)])
def test_equals_numpy(n, d, mode):
    x = cloud(n, d, seed=n)
    layer = CutTails(d, mode=mode, stats="batch")
    expected, cut = reference(x, mode)
    assert cut == [1, 4]
    torch.testing.assert_close(layer(x), expected)
    assert layer.counters["dims_cut"].item() == 2
    assert estimate(x).cut_D.nonzero().flatten().tolist() == cut


def test_each_rule_finds_its_own_dimension():
    x = cloud(200, 40)
    by_mean = estimate(x, variance_factor=1e9).cut_D
    by_variance = estimate(x, threshold=1e9).cut_D
    assert by_mean.nonzero().flatten().tolist() == [1]
    assert by_variance.nonzero().flatten().tolist() == [4]


def test_given_dimensions_are_cut_and_no_others():
    x = cloud(32, 8)
    y = CutTails(8, dims=[0, 7], mode="zero", stats="batch")(x)
    assert torch.equal(y[:, 1:7], x[:, 1:7])
    assert bool((y[:, [0, 7]] == 0.0).all())
    nothing = CutTails(8, dims=[], stats="batch")
    assert torch.equal(nothing(x), x)
    assert nothing.counters["dims_cut"].item() == 0


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 10_000), st.floats(2.0, 4.0))
@light
def test_something_is_always_left_and_uniform_scale_goes_through(n, d, seed, factor):
    generator = torch.Generator().manual_seed(seed)
    scale_D = 10.0 ** torch.randn(d, generator=generator, dtype=torch.float64)
    x = (torch.randn(n, d, generator=generator, dtype=torch.float64) + 1.0) * scale_D
    options = {"threshold": 2.0, "variance_factor": factor}
    layer = CutTails(d, stats="batch", **options)
    stats, y = layer.estimate(x), layer(x)
    assert int(stats.cut_D.sum()) < d
    assert bool((y.abs() <= x.abs()).all())
    assert torch.equal(y[:, ~stats.cut_D], x[:, ~stats.cut_D])
    torch.testing.assert_close(layer(8.0 * x), 8.0 * y)


def test_isotropic_rows_keep_all_their_dimensions():
    x = cloud(512, 256, tails=False)
    layer = CutTails(256, stats="batch")
    assert torch.equal(layer(x), x)
    assert layer.counters["dims_cut"].item() == 0


@pytest.mark.parametrize("n", [1, 2, 8, 512])
@pytest.mark.parametrize("dims", [None, [1]])
def test_equal_rows_pass_through_and_are_counted(n, dims):
    x = cloud(1, 12, dtype=torch.float32).repeat(n, 1)
    layer = CutTails(12, dims=dims, mode="zero", stats="batch")
    assert torch.equal(layer(x), x)
    assert layer.counters["rows_passed_through"].item() == n
    assert layer.counters["dims_cut"].item() == 0


@pytest.mark.parametrize("mode", ["clip", "zero"])
def test_gradient_passes_where_the_coordinate_was_left(mode):
    x = cloud(16, 40)
    x[0] = 0.0  # a coordinate that is zero already is zeroed all the same
    x.requires_grad_()
    layer = CutTails(40, mode=mode, stats="batch")
    upstream = torch.randn(16, 40, generator=torch.Generator().manual_seed(1)).double()
    y = layer(x)
    y.backward(upstream)
    left = x.detach() == y.detach()
    if mode == "zero":
        left[:, [1, 4]] = False
    assert torch.equal(x.grad, upstream * left)


@pytest.mark.parametrize("bound", [0.0, 2.0])
def test_gradcheck_of_apply(bound):
    x = cloud(6, 5).requires_grad_()
    cut_D = torch.tensor([False, True, False, False, True])
    stats = CutTailsStats(cut_D, torch.tensor(bound).double(), {})
    assert torch.autograd.gradcheck(lambda rows: CutTails(5).transform(rows, stats, False), x)
