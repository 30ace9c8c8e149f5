"""The ring of recent rows. M capacity, D width."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.queue import RowQueue

light = settings(max_examples=25)


def firsts(queue):
    return sorted(queue.rows()[:, 0].tolist())


def test_the_oldest_rows_leave_first():
    queue = RowQueue(7, 2, span=1)
    seen = torch.arange(36.0).reshape(18, 2)
    for start in range(0, 18, 3):
        queue.push(seen[start : start + 3])
        assert firsts(queue) == seen[max(0, start + 3 - 7) : start + 3, 0].tolist()
        assert int(queue.batch_rows) == 3
    assert len(queue.rows()) == 7


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(7, 12))
@light
def test_holds_the_last_rows_for_any_batch_sizes(sizes, capacity):
    queue, seen = RowQueue(capacity, 2, span=1), []
    for size in sizes:
        rows = torch.arange(len(seen), len(seen) + size).float()
        queue.push(torch.stack([rows, -rows], dim=1))
        seen += rows.tolist()
        assert firsts(queue) == seen[-capacity:]
        assert torch.equal(queue.rows()[:, 1], -queue.rows()[:, 0])


def test_rows_that_are_not_finite_are_dropped():
    queue = RowQueue(8, 2, span=1)
    x = torch.arange(10.0).reshape(5, 2)
    x[1, 0], x[3, 1] = float("nan"), float("inf")
    queue.push(x)
    assert firsts(queue) == [0.0, 4.0, 8.0]
    assert int(queue.batch_rows) == 3
    before = {name: value.clone() for name, value in queue.state_dict().items()}
    queue.push(torch.full((4, 2), float("nan")))
    assert all(torch.equal(before[name], value) for name, value in queue.state_dict().items())


@pytest.mark.parametrize("n", [11, 25, 1000])
def test_more_rows_than_capacity_are_thinned_evenly(n):
    queue = RowQueue(10, 1, span=1)
    queue.push(torch.full((4, 1), -1.0))
    queue.push(torch.arange(float(n))[:, None])
    assert firsts(queue) == [float(i * n // 10) for i in range(10)]
    assert int(queue.batch_rows) == n
    queue.push(torch.tensor([[-5.0]]))  # then the oldest of those leaves
    assert firsts(queue) == [-5.0] + [float(i * n // 10) for i in range(1, 10)]


def test_rows_are_detached_copies_in_the_buffer_dtype():
    queue = RowQueue(4, 2, span=1)
    x = torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True)
    queue.push(x)
    with torch.no_grad():
        x.fill_(9.0)
    assert queue.rows().dtype == torch.float32
    assert not queue.rows().requires_grad
    assert queue.rows().tolist() == [[1.0, 1.0]] * 3


def test_a_checkpoint_holds_the_rows_and_the_place():
    one, two = RowQueue(5, 1, span=1), RowQueue(5, 1, span=1)
    one.push(torch.arange(3.0)[:, None])
    two.load_state_dict(one.state_dict())
    for queue in (one, two):
        queue.push(torch.arange(10.0, 14.0)[:, None])
    assert torch.equal(one.rows_MD, two.rows_MD)
    assert firsts(two) == [2.0, 10.0, 11.0, 12.0, 13.0]


def test_one_push_never_fills_the_queue():
    queue = RowQueue(16, 1)
    for step in range(8):
        queue.push(torch.full((2240, 1), float(step)))
    assert firsts(queue) == [float(step) for step in range(8) for _ in range(2)]


def test_batch_rows_is_the_largest_batch_whatever_comes_last():
    queue = RowQueue(64, 1)
    queue.push(torch.zeros(32, 1))
    queue.push(torch.zeros(2, 1))
    assert int(queue.batch_rows) == 32


def test_a_capacity_below_two_is_refused():
    with pytest.raises(ValueError, match="capacity must be at least 2, got 1"):
        RowQueue(1, 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_labels_leave_with_their_rows_and_keep_their_type(dtype):
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


def test_a_row_without_a_finite_score_is_dropped():
    queue = RowQueue(4, 1, span=1, has_labels=True)
    queue.push(torch.ones(3, 1), labels_N=torch.tensor([0.5, float("nan"), 0.25]))
    assert queue.labels().tolist() == [0.5, 0.25]


def test_a_queue_without_labels_has_none():
    queue = RowQueue(4, 1)
    queue.push(torch.ones(3, 1), labels_N=torch.ones(3))
    assert queue.labels() is None
    assert "labels_M" not in queue.state_dict()
