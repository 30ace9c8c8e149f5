"""The life cycle that a layer of a few lines gets: queue, frozen statistics, half precision."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from isotrain.transforms.fitted import FittedTransform


class ShiftStats(NamedTuple):
    """The mean of the rows."""

    mean: Tensor
    counters: dict[str, Tensor]


class Shift(FittedTransform[ShiftStats]):
    """Rows minus their mean; says what it was asked."""

    def __init__(self, width, stats="queue", eval_stats="frozen"):
        super().__init__(width, ShiftStats(torch.zeros(width), {}), stats, eval_stats, 16)
        self.asked, self.followed = [], []

    def estimate(self, rows_ND, to_freeze=False):
        assert not torch.is_autocast_enabled("cpu")
        self.asked.append((len(rows_ND), to_freeze))
        return ShiftStats(rows_ND.mean(dim=0), {"n": torch.tensor(len(rows_ND))})

    def transform(self, rows_ND, stats, are_last):
        self.are_last = are_last
        return rows_ND - stats.mean

    def follow(self, rows_MD, labels_M):
        self.followed.append(len(rows_MD))


ROWS = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
CENTRED = [[-1.0, -2.0], [1.0, 2.0]]


@pytest.mark.parametrize(("stats", "n"), [("batch", 2), ("queue", 4)])
def test_training_estimates_from_the_batch_or_the_queue_and_the_batch(stats, n):
    layer = Shift(2, stats=stats)
    layer.observe(ROWS)
    assert layer(ROWS).tolist() == CENTRED
    assert layer.asked == [(n, False)]
    assert layer.are_last
    assert layer.counters == {"n": n, "energy_kept": 1.0}
    assert layer.followed == [2]


def test_evaluation_applies_what_was_frozen_and_estimates_nothing():
    layer = Shift(2).eval()
    with pytest.raises(RuntimeError, match=r"fit\(\).*eval_stats=batch"):
        layer(ROWS)
    layer.fit(ROWS + 5)
    assert layer.asked == [(2, True)]
    assert layer(ROWS).tolist() == [[-6.0, -7.0], [-4.0, -3.0]]
    assert layer.asked == [(2, True)]
    assert not layer.are_last
    assert layer.counters == {}


def test_a_map_fitted_at_the_start_stays_for_training_and_evaluation():
    layer = Shift(2, stats="start")
    with pytest.raises(RuntimeError, match=r"call fit\(x\) first"):
        layer(ROWS)
    with torch.no_grad():  # how the trainer collects rows before it fits
        assert layer(ROWS).tolist() == CENTRED
    layer.observe(ROWS)
    layer.fit(ROWS + 5)
    asked = list(layer.asked)
    for training in (True, False):
        layer.train(training)
        assert layer(ROWS).tolist() == [[-6.0, -7.0], [-4.0, -3.0]]
    layer.fit()
    assert layer(ROWS).tolist() == [[-6.0, -7.0], [-4.0, -3.0]]
    assert layer.asked == asked
    layer.fit(ROWS)  # rows that are given are taken
    assert layer(ROWS).tolist() == CENTRED
    with pytest.raises(ValueError, match="use eval_stats=frozen or refit"):
        Shift(2, stats="start", eval_stats="batch")


@pytest.mark.parametrize("x", [torch.ones(2, 3), torch.ones(2, 2, 2), torch.ones(2)])
@pytest.mark.parametrize("method", ["forward", "observe", "fit"])
def test_rows_of_another_shape_are_refused(x, method):
    with pytest.raises(ValueError, match=r"embeddings must be \[N, 2\], got shape"):
        getattr(Shift(2), method)(x)


def test_evaluation_may_take_the_batch():
    assert Shift(2, eval_stats="batch").eval()(ROWS).tolist() == CENTRED


def test_the_frozen_tensors_are_buffers_by_their_names():
    layer, other = Shift(2), Shift(2)
    assert {"mean", "is_fitted", "queue.rows_MD"} <= set(layer.state_dict())
    layer.fit(ROWS)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.eval()(ROWS), layer.eval()(ROWS))
    assert layer.mean.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_row_comes_back_as_it_was_given(dtype):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = Shift(2)(ROWS.to(dtype))
    assert y.dtype == dtype
    assert y.tolist() == CENTRED


def test_a_row_with_a_nan_is_left_out_and_a_cloud_of_them_passes():
    layer = Shift(2)
    y = layer(torch.cat([ROWS, torch.tensor([[float("nan"), 0.0]])]))
    assert y[:2].tolist() == CENTRED
    assert layer.asked == [(2, False)]
    assert not layer.are_last
    lost = torch.full((3, 2), float("nan"))
    assert layer(lost) is lost
    layer.observe(lost)
    assert layer.followed == []
    with pytest.raises(RuntimeError, match="fit needs embeddings"):
        layer.fit()


def test_a_layer_without_its_mathematics_cannot_be_made():
    class Half(Shift):
        estimate = FittedTransform.estimate

    with pytest.raises(TypeError, match="estimate"):
        Half(2)
