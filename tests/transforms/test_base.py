"""The contract of isotropy layers, the statistics of a few-line layer, and the queue."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isotrain.geometry.spectra import rms_distance
from isotrain.transforms.base import RowTransform
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import FittedTransform
from isotrain.transforms.identity import Identity
from isotrain.transforms.iso_grad import IsoGrad
from isotrain.transforms.queue import RowQueue
from isotrain.transforms.zca_dense import ZCADense


def test_a_layer_of_forward_alone_has_nothing_to_fit_or_to_remember():
    class Negate(RowTransform):
        def forward(self, x_ND):
            return -x_ND

    layer = Negate(width=2)
    assert layer(torch.ones(1, 2)).tolist() == [[-1.0, -1.0]]
    layer.observe(torch.ones(1, 2))
    layer.fit()
    assert (layer.needs_fit(), layer.recent_rows()) == (False, None)
    assert (layer.has_statistics, layer.reads_labels, layer.changes_rows) == (False, False, True)
    layer.counters["seen"] = torch.tensor(1.0)
    assert (Negate(1).counters, layer.state_dict()) == ({}, {})


def test_a_layer_that_overrides_fit_has_statistics():
    class Mine(RowTransform):
        def fit(self, x_ND=None, labels_N=None):
            pass

    class Said(Mine):
        has_statistics = False

    assert Mine(width=1).has_statistics
    assert not Said(width=1).has_statistics


def test_labels_may_be_asked_for_in_the_class():
    class Mine(ClusterPCA):
        reads_labels = True

    with pytest.raises(ValueError, match="labels"):
        Mine(width=2, n_clusters=1, n_components=0)(torch.randn(4, 2))


def test_the_identity_gives_the_same_tensor():
    layer, x = Identity(width=3), torch.ones(4, 3)
    for mode in (True, False):
        assert layer.train(mode)(x) is x
    assert not layer.changes_rows


# FittedTransform


@dataclass(frozen=True)
class ShiftStats:
    """The mean of the embeddings."""

    mean: Tensor
    counters: dict[str, Tensor]


class Shift(FittedTransform):
    """Embeddings minus their mean; records what it was asked."""

    def __init__(self, width, **statistics):
        empty = ShiftStats(torch.zeros(width), {})
        super().__init__(width, empty, **{"queue_rows": 16, **statistics})
        self.asked, self.followed = [], []

    def estimate(self, x_ND, to_freeze=False):
        assert not torch.is_autocast_enabled("cpu")
        self.asked.append((len(x_ND), to_freeze))
        return ShiftStats(x_ND.mean(dim=0), {"n": torch.tensor(len(x_ND))})

    def transform(self, x_ND, stats, are_last):
        self.are_last = are_last
        return x_ND - stats.mean

    def follow(self, x_MD, labels_M):
        self.followed.append(len(x_MD))


ROWS = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
CENTRED = [[-1.0, -2.0], [1.0, 2.0]]
SHIFTED = [[-6.0, -7.0], [-4.0, -3.0]]  # less the mean of ROWS + 5


@pytest.mark.parametrize(("stats", "n"), [("batch", 2), ("queue", 4)])
def test_training_estimates_from_the_batch_or_the_queue_and_the_batch(stats, n):
    layer = Shift(2, stats=stats)
    layer.observe(ROWS)
    assert layer(ROWS).tolist() == CENTRED
    assert (layer.asked, layer.are_last, layer.followed) == ([(n, False)], True, [2])
    assert layer.counters == {"n": n, "energy_kept": 1.0}
    layer.fit()
    assert layer.needs_fit()  # the queue moves on


@pytest.mark.parametrize("eval_stats", ["frozen", "refit"])
def test_evaluation_applies_what_was_frozen_and_estimates_nothing(eval_stats):
    layer, other = (Shift(2, eval_stats=eval_stats).eval() for _ in range(2))
    with pytest.raises(RuntimeError, match=r"fit\(\).*eval_stats=batch"):
        layer(ROWS)
    layer.fit(torch.cat([ROWS + 5, torch.tensor([[0.0, float("nan")]])]))
    layer.observe(ROWS)  # changes nothing until the next fit
    assert layer(ROWS).tolist() == SHIFTED
    assert (layer.asked, layer.are_last, layer.counters) == ([(2, True)], False, {})
    assert {"mean", "is_fitted", "queue.rows_MD"} <= set(layer.state_dict())
    other.load_state_dict(layer.state_dict())
    assert other(ROWS).tolist() == SHIFTED


def test_evaluation_may_take_the_batch():
    assert Shift(2, eval_stats="batch").eval()(ROWS).tolist() == CENTRED


def test_a_map_fitted_at_the_start_stays_for_training_and_evaluation():
    layer = Shift(2, stats="start")
    assert layer.needs_fit()
    with pytest.raises(RuntimeError, match=r"call fit\(\)"):
        layer(ROWS)
    with torch.no_grad():  # how the trainer collects embeddings before it fits
        assert layer(ROWS).tolist() == CENTRED
    layer.observe(ROWS)
    layer.fit(ROWS + 5)
    assert not layer.needs_fit()
    layer.fit()
    asked = list(layer.asked)
    for training in (True, False):
        assert layer.train(training)(ROWS).tolist() == SHIFTED
    assert layer.asked == asked
    layer.fit(ROWS)  # embeddings that are given are taken
    assert layer(ROWS).tolist() == CENTRED
    with pytest.raises(ValueError, match="use eval_stats=frozen or refit"):
        Shift(2, stats="start", eval_stats="batch")


@pytest.mark.parametrize("x", [torch.ones(2, 3), torch.ones(2, 2, 2), torch.ones(2)])
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((Shift, "forward"), (Shift, "observe"), (Shift, "fit")),
        *((IsoGrad, "forward"), (ZCADense, "forward")),
    ],
)
def test_embeddings_of_another_shape_are_rejected(kind, method, x):
    with pytest.raises(ValueError, match=r"embeddings must be \[N, 2\], got shape"):
        getattr(kind(2), method)(x)


def test_an_embedding_with_a_nan_is_left_out_and_a_cloud_of_them_passes():
    layer = Shift(2)
    y = layer(torch.cat([ROWS, torch.tensor([[float("nan"), 0.0]])]))
    assert y[:2].tolist() == CENTRED
    assert (layer.asked, layer.are_last) == ([(2, False)], False)
    lost = torch.full((3, 2), float("nan"))
    assert layer(lost) is lost
    assert layer.counters == {}
    layer.observe(lost)
    assert layer.followed == []
    with pytest.raises(RuntimeError, match="fit needs embeddings"):
        layer.fit()


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_energy_kept_is_counted_in_training(strength):
    class Shrink(Shift):
        def transform(self, x_ND, stats, are_last):
            return strength * x_ND

    layer, x = Shrink(2), torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    x[3, 1] = float("nan")
    keep = torch.arange(9) != 3
    y = layer(x.clone().requires_grad_()).detach()
    expected = float(rms_distance(y[keep]) ** 2 / rms_distance(x[keep]) ** 2)
    assert expected == pytest.approx(strength**2)
    assert float(layer.counters["energy_kept"]) == pytest.approx(expected)
    assert not layer.counters["energy_kept"].requires_grad


def test_a_layer_without_its_mathematics_cannot_be_made():
    class Half(Shift):
        estimate = FittedTransform.estimate

    with pytest.raises(TypeError, match="estimate"):
        Half(2)


# RowQueue


def firsts(queue):
    return sorted(queue.rows()[:, 0].tolist())


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(7, 12))
@settings(max_examples=25)
def test_the_queue_holds_the_last_embeddings_for_any_batch_sizes(sizes, capacity):
    queue, other, seen = *(RowQueue(capacity, 2, span=1) for _ in range(2)), []
    for size in sizes:
        rows = torch.arange(len(seen), len(seen) + size).float()
        other.load_state_dict(queue.state_dict())  # the oldest leave first there too
        for one in (queue, other):
            one.push(torch.stack([rows, -rows], dim=1))
        seen += rows.tolist()
        assert firsts(queue) == firsts(other) == seen[-capacity:]
        assert torch.equal(queue.rows()[:, 1], -queue.rows()[:, 0])
    assert queue.batch_rows == max(sizes, default=0)


def test_embeddings_that_are_not_finite_are_dropped():
    queue, x = RowQueue(8, 2, span=1), torch.arange(10.0).reshape(5, 2)
    x[1, 0], x[3, 1] = float("nan"), float("inf")
    queue.push(x)
    assert (firsts(queue), queue.batch_rows) == ([0.0, 4.0, 8.0], 3)
    before = {name: value.clone() for name, value in queue.state_dict().items()}
    queue.push(torch.full((4, 2), float("nan")))
    assert all(torch.equal(before[name], value) for name, value in queue.state_dict().items())


@pytest.mark.parametrize("n", [11, 25, 1000])
def test_more_embeddings_than_capacity_are_thinned_evenly(n):
    queue = RowQueue(10, 1, span=1)
    queue.push(torch.full((4, 1), -1.0))
    queue.push(torch.arange(float(n))[:, None])
    assert firsts(queue) == [float(i * n // 10) for i in range(10)]
    queue.push(torch.tensor([[-5.0]]))  # then the oldest of those leaves
    assert firsts(queue) == [-5.0] + [float(i * n // 10) for i in range(1, 10)]


def test_one_push_fills_an_eighth_and_the_largest_batch_counts():
    queue = RowQueue(16, 1)
    for step in range(8):
        queue.push(torch.full((2240, 1), float(step)))
    assert firsts(queue) == [float(step) for step in range(8) for _ in range(2)]
    assert queue.batch_rows == 2240
    several = RowQueue(64, 1)
    several.push(torch.zeros(32, 1), n_batch=16)
    assert several.batch_rows == 16


def test_embeddings_are_detached_copies_in_the_type_of_the_buffer():
    queue, x = RowQueue(4, 2, span=1), torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True)
    queue.push(x, labels_N=torch.ones(3))
    with torch.no_grad():
        x.fill_(9.0)
    assert (queue.rows().dtype, queue.rows().requires_grad) == (torch.float32, False)
    assert queue.rows().tolist() == [[1.0, 1.0]] * 3
    assert queue.labels() is None
    assert "labels_M" not in queue.state_dict()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_labels_leave_with_their_embeddings_and_keep_their_type(dtype):
    queue, other = (RowQueue(5, 1, span=1, has_labels=True) for _ in range(2))
    x = torch.arange(12.0)[:, None]
    x[6] = float("nan")
    for part in (slice(0, 3), slice(3, 7), slice(7, 12)):
        queue.push(x[part], labels_N=x[part, 0].nan_to_num(9.0).to(dtype))
        assert torch.equal(queue.rows()[:, 0], queue.labels().float())
    assert sorted(queue.labels().tolist()) == [7, 8, 9, 10, 11]
    other.load_state_dict(queue.state_dict())
    assert other.labels().dtype == queue.labels().dtype == dtype
    assert torch.equal(other.labels(), queue.labels())
    if dtype.is_floating_point:
        queue.push(torch.ones(2, 1), labels_N=torch.tensor([float("nan"), 0.25]))
        assert sorted(queue.labels().tolist()) == [0.25, 8, 9, 10, 11]
