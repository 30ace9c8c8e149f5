"""The identity whose backward asks for isotropy: closed forms, a slow reference, queue, runs.

N embeddings, D width, M embeddings of a queue.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.model.layer_inputs import LayerInputs
from isotrain.transforms.iso_grad import IsoGrad, isotropy_gradient, isotropy_loss
from isotrain.transforms.zca import ZCA
from tests.clouds import correlated as cloud
from tests.clouds import normal
from tests.stopped_runs import finished

light = settings(max_examples=25)


def layer_of(d, rho=0.2, **options):
    return IsoGrad(d, rho, **options).double()


def added(layer, x, g):
    """What the layer adds to an incoming gradient."""
    rows = x.clone().requires_grad_()
    y = layer(rows)
    assert torch.equal(y, x)
    y.backward(g)
    return rows.grad - g


def slow_loss(x):
    """Of the published parts, in float64."""
    return float(1.0 - isoscore(x) + mean_cosine(x) ** 2)


def moved(queue, x, step):
    """Queue and batch, which stands for all, after the batch has moved: docs/decisions/0016."""
    shift = step.mean(dim=0)
    times = (len(queue) + len(x)) / len(x)
    return torch.cat([queue + shift, x + shift + times * (step - shift)])


def slow_gradient(queue, x, epsilon=1e-5):
    """Of `slow_loss`, an entry at a time."""
    found = torch.zeros_like(x)
    for i in range(x.numel()):
        step = torch.zeros_like(x)
        step.view(-1)[i] = epsilon
        above, below = (slow_loss(moved(queue, x, sign * step)) for sign in (1.0, -1.0))
        found.view(-1)[i] = (above - below) / (2.0 * epsilon)
    return found


# --- what is added ----------------------------------------------------------------------------


@given(st.integers(3, 40), st.integers(2, 12), st.floats(0.01, 2.0), st.integers(0, 9999))
@light
def test_what_is_added_is_orthogonal_to_the_gradient_and_rho_times_as_long(n, d, rho, seed):
    x, g = cloud(n, d, seed, mean=1.0), normal(n, d, seed=seed + 1)
    layer = layer_of(d, rho)
    found = added(layer, x, g)
    assert float((found * g).sum()) == pytest.approx(0.0, abs=1e-9 * float(g.square().sum()))
    assert float(found.norm()) == pytest.approx(rho * float(g.norm()), rel=1e-9)
    assert float(layer.gradient_counters["gradient_added"]) == pytest.approx(rho, rel=1e-6)


@pytest.mark.parametrize("n_queue", [0, 7])
def test_what_is_added_is_the_slow_references(n_queue):
    x, g, queue = cloud(6, 4, mean=1.0), normal(6, 4, seed=1), cloud(n_queue, 4, seed=2, mean=0.5)
    layer = layer_of(4, 0.3, queue_rows=64)
    if n_queue:
        layer.observe(queue)
    h = slow_gradient(queue, x)
    cosine = float((h * g).sum() / h.norm() / g.norm())
    left = h - (h * g).sum() / g.square().sum() * g
    expected = 0.3 * g.norm() * left / left.norm()
    torch.testing.assert_close(added(layer, x, g), expected, rtol=1e-5, atol=1e-6)
    counters = {name: float(value) for name, value in layer.gradient_counters.items()}
    assert counters["gradient_cosine"] == pytest.approx(cosine, abs=1e-6)
    assert counters["isotropy_loss"] == pytest.approx(slow_loss(torch.cat([queue, x])))
    assert counters["rows_read"] == 6 + n_queue
    assert abs(cosine) > 1e-3


@given(st.integers(3, 30), st.integers(2, 10), st.integers(0, 9999))
@light
def test_the_loss_is_made_of_the_projects_metrics(n, d, seed):
    x = cloud(n, d, seed, mean=0.7)
    assert float(isotropy_loss(x)) == pytest.approx(slow_loss(x), rel=1e-9, abs=1e-12)
    assert 0.0 <= float(isotropy_loss(x)) <= 2.0


@pytest.mark.parametrize("n_queue", [0, 40])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_against_it_lowers_the_isotropy_loss_and_not_the_task_loss(n_queue, seed):
    """By finite differences: where the two do not conflict, and where they do, too."""
    x, queue = cloud(16, 8, seed, mean=1.0), cloud(n_queue, 8, seed + 50, mean=1.0)
    layer = layer_of(8, queue_rows=8 * 64)
    if n_queue:
        layer.observe(queue)
    g = normal(16, 8, seed=seed + 7, mean=0.0)
    _, h = isotropy_gradient(x, queue)
    for task in (g - (g * h).sum() / h.square().sum() * h, g, h + 0.1 * g, -h + 0.1 * g):
        found = added(layer, x, task)
        step = -1e-4 * found / found.norm()
        if float(layer.gradient_counters["gradient_cosine"]) ** 2 < 0.999:
            assert slow_loss(moved(queue, x, step)) < slow_loss(torch.cat([queue, x]))
        # A task loss that is linear in the embeddings does not change at all.
        assert float((task * step).sum()) == pytest.approx(0.0, abs=1e-12)


@given(st.floats(1e-12, 1e12), st.floats(1e-3, 1e3), st.integers(0, 999))
@light
def test_it_turns_with_both_and_scales_with_the_gradient_alone(factor, scale, seed):
    """So a loss scale, or a mean over processes, changes nothing else."""
    x, g = cloud(8, 5, seed, mean=1.0), normal(8, 5, seed=seed + 1)
    axes = torch.linalg.qr(normal(5, 5, seed=2))[0]
    layer = layer_of(5)
    found = added(layer, scale * x @ axes, factor * g @ axes)
    torch.testing.assert_close(found / factor, added(layer, x, g) @ axes)


# --- where nothing is added -------------------------------------------------------------------


def test_evaluation_no_gradient_and_rho_zero_are_the_plain_identity():
    x, g = cloud(8, 4).requires_grad_(), normal(8, 4)
    layer = layer_of(4)
    assert layer.eval()(x) is x
    with torch.no_grad():
        assert layer.train()(x) is x
    plain = layer_of(4, rho=0.0)
    assert plain(x) is x
    plain(x).backward(g)
    assert torch.equal(x.grad, g)
    assert layer.gradient_counters == plain.gradient_counters == {}


@pytest.mark.parametrize(
    ("x", "g"),
    [
        (cloud(8, 4), torch.zeros(8, 4).double()),  # no task gradient
        (cloud(8, 4), torch.full((8, 4), float("inf")).double()),  # an overflow of half precision
        (cloud(8, 4)[:1].repeat(8, 1), normal(8, 4)),  # no scatter
        (cloud(2, 4), normal(2, 4)),  # a line, whatever it means
        (cloud(1, 4), normal(1, 4)),
        (cloud(8, 4), isotropy_gradient(cloud(8, 4), cloud(0, 4))[1]),  # the same direction
        (cloud(8, 4), -isotropy_gradient(cloud(8, 4), cloud(0, 4))[1]),
    ],
)
def test_where_it_is_not_defined_the_gradient_passes(x, g):
    rows, layer = x.clone().requires_grad_(), layer_of(4)
    layer(rows).backward(g)
    torch.testing.assert_close(rows.grad, g)
    assert float(layer.gradient_counters["gradient_added"]) == 0.0


def test_an_isotropic_cloud_is_left_alone():
    x = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    # Its IsoScore is 1. The mean cosine of pairs of distinct embeddings is −1/7, so that is left.
    _, h = isotropy_gradient(x, x[:0])
    assert float(h.norm()) < 1e-9


def test_an_embedding_with_a_nan_gets_nothing_and_the_others_what_they_had():
    x, g = cloud(9, 4, mean=1.0), normal(9, 4, seed=1)
    g[4] = 0.0
    keep = torch.arange(9) != 4
    expected = added(layer_of(4), x[keep], g[keep])
    bad = x.clone()
    bad[4, 1] = float("nan")
    rows = bad.requires_grad_()
    layer_of(4)(rows).backward(g)
    torch.testing.assert_close((rows.grad - g)[keep], expected)
    assert torch.equal(rows.grad[4], g[4])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded(dtype):
    x, g = cloud(32, 8, mean=1.0).to(dtype), normal(32, 8, seed=1).to(dtype)
    rows = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = IsoGrad(8)(rows)
        y.backward(g)
    assert torch.equal(y, x)
    wide = x.float().requires_grad_()
    IsoGrad(8)(wide).backward(g.float())
    assert rows.grad.dtype == dtype
    assert torch.equal(rows.grad, wide.grad.to(dtype))
    assert not torch.equal(rows.grad, g)


# --- the queue --------------------------------------------------------------------------------


def test_shifting_all_embeddings_is_rewarded_for_the_common_direction_alone():
    """IsoScore ignores a shift: its part of the gradient sums to zero, with a queue too."""
    x, queue = cloud(8, 5), cloud(40, 5, seed=1)
    mean = torch.cat([queue, x]).mean(dim=0)
    _, centred = isotropy_gradient(x - mean, queue - mean)
    _, far = isotropy_gradient(x + 9.0, queue + 9.0)
    assert float(far.sum(dim=0) @ torch.ones(5).double()) > 0  # descending goes to the origin
    assert float(centred.sum(dim=0).norm()) < 0.2 * float(centred.norm())


def test_a_queue_that_repeats_the_batch_gives_the_direction_of_the_batch():
    x = cloud(200, 4, mean=1.0)
    (_, alone), (_, queued) = (isotropy_gradient(x, x.repeat(k, 1)) for k in (0, 3))
    cosine = float((alone * queued).sum() / alone.norm() / queued.norm())
    assert cosine == pytest.approx(1.0, abs=1e-4)


def test_the_queue_is_fed_once_a_step_and_goes_through_a_state_dict():
    x, g = cloud(10, 4, mean=1.0), normal(10, 4, seed=1)
    layer = layer_of(4, queue_rows=64)
    for _ in range(3):  # micro-batches: backward changes no state
        added(layer, x, g)
    assert len(layer.recent_rows()) == 0
    layer.observe(torch.cat([x, x]))
    assert len(layer.recent_rows()) == 8  # an eighth of the queue
    other = layer_of(4, queue_rows=64)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(added(other, x, g), added(layer, x, g), rtol=0, atol=0)
    assert not torch.equal(added(layer, x, g), added(layer_of(4), x, g))


def test_no_graph_is_kept_and_the_forward_may_be_called_several_times_before():
    x, g, layer = cloud(10, 4, mean=1.0), normal(10, 4, seed=1), layer_of(4)
    first, second = (y.clone().requires_grad_() for y in (x, x + 1.0))
    outputs = layer(first), layer(second)
    for y in reversed(outputs):
        y.backward(g)
    torch.testing.assert_close(first.grad - g, added(layer, x, g), rtol=0, atol=0)
    torch.testing.assert_close(second.grad - g, added(layer, x + 1.0, g), rtol=0, atol=0)
    layer.observe(first)
    assert not layer.recent_rows().requires_grad
    assert not any(value.requires_grad for value in layer.gradient_counters.values())


# --- in a run ---------------------------------------------------------------------------------

KEYS = ("isotropy=iso_grad", "isotropy.queue_rows=64", "site=[tokens,pooled]", "metric=[]")


def test_nothing_below_or_behind_the_layer_is_rejected(built):
    with pytest.raises(ValueError, match=r"IsoGrad at pooled adds .* nothing there ever trains"):
        built("task=rte", "isotropy=iso_grad", "site=[pooled]", "freezing=head_only")
    contrastive = ("task=stsb_sentences", "objective=[cosreg]", "objective.cosreg.reads=[before]")
    with pytest.raises(ValueError, match=r"IsoGrad at pooled adds .* no loss of task=stsb_sent"):
        built(*contrastive, "isotropy=iso_grad", "site=[pooled]")
    built(*contrastive[:2], "isotropy=iso_grad", "site=[pooled]")


def test_a_run_with_rho_0_is_one_without_a_layer(composed, small, tmp_path):
    keys = (*small, "task=wic", *KEYS, "trainer.max_steps=6", "cache_dir=null")
    plain = finished(composed(*keys, "isotropy.rho=0", f"output_dir={tmp_path / 'plain'}"))
    none = [k for k in keys if not k.startswith("isotropy")] + ["isotropy=none"]
    bare = finished(composed(*none, f"output_dir={tmp_path / 'bare'}"))
    assert plain[0] == bare[0]
    assert all(torch.equal(plain[2][name], value) for name, value in bare[2].items())


def test_any_model_fills_the_queue():
    """It has no statistics to fit, and embeddings to remember."""
    layers = IsoGrad(4, queue_rows=24), ZCA(4, queue_rows=24)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), *layers)
    inputs = LayerInputs(model)
    for _ in range(4):
        model(torch.randn(8, 4)).sum().backward()
        inputs.observe()
    inputs.fit()
    assert len(layers[0].queue.rows()) == len(layers[1].queue.rows()) > 8
