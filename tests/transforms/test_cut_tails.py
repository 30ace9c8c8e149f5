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


def test_duplicates_count_like_the_rows_they_repeat():
    x, layer = cloud(6, 40), CutTails(40, stats="batch")
    torch.testing.assert_close(layer(x.repeat(5, 1))[:6], layer(x))


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


def test_queue_statistics_join_the_queue_and_the_batch():
    old, new = cloud(40, 32), cloud(10, 32, seed=1)
    layer = CutTails(32, stats="queue").double()
    layer.observe(old)
    torch.testing.assert_close(layer(new), reference(torch.cat([old, new]), "clip")[0][40:])


@pytest.mark.parametrize("stats", ["batch", "queue"])
def test_training_then_frozen_evaluation_that_survives_a_state_dict(stats):
    torch.manual_seed(0)
    encoder = torch.nn.Linear(24, 24)
    layer = CutTails(24, stats=stats, queue_rows=512)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    x, losses = cloud(64, 24, dtype=torch.float32), []
    for _ in range(20):
        rows = encoder(x)
        loss = (layer(rows) - 1.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.observe(rows)
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    layer.fit(x)
    assert layer.cut_D.dtype == torch.bool
    assert layer.cut_D.nonzero().flatten().tolist() == [1, 4]
    layer.eval()
    other = torch.cat([x[:16], 50.0 * cloud(48, 24, seed=3, dtype=torch.float32)])
    assert torch.equal(layer(other)[:16], layer(x)[:16])
    torch.testing.assert_close(layer(x).double(), reference(x, "clip")[0], atol=1e-5, rtol=0)
    twin = CutTails(24, stats=stats, queue_rows=512)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin.eval()(x), layer(x))
    assert torch.equal(twin.train()(x), layer.train()(x))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dims": [8]}, r"some, not all, of 0 to width − 1 = 7, got \[8\]"),
        ({"dims": [-1]}, "got .-1"),
        ({"dims": "308"}, "got .'3'"),
        ({"dims": range(8)}, "not all"),
        ({"mode": "drop"}, "mode must be clip or zero"),
        ({"clip_sd": 0.0}, "clip_sd must be above 0"),
        ({"threshold": 1.0}, "threshold must be at least 2"),
        ({"variance_factor": 1.0}, "variance_factor must be at least 2"),
    ],
)
def test_errors_name_the_option(options, words):
    with pytest.raises(ValueError, match=words):
        CutTails(**{"width": 8, **options})
