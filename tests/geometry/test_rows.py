"""Row ids, their hash, putting rows back and the checks of a cloud."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.rows import (
    has_scatter,
    hash_ids,
    have_scatter,
    put_rows,
    row_ids,
)
from tests.clouds import light

WORD = (1 << 64) - 1


def splitmix64(seed):
    """The published generator's output for state `seed`, top bit cleared."""
    z = (seed + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return (z ^ (z >> 31)) & (WORD >> 1)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20))
@light
def test_hash_equals_splitmix64_in_plain_python(ids):
    assert hash_ids(torch.tensor(ids)).tolist() == [splitmix64(i & WORD) for i in ids]


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6, unique=True),
    st.integers(1, 4),
    st.integers(1, 9),
)
@light
def test_row_ids_are_unique_and_sequence_major(index, n_sequences, n_positions):
    ids = row_ids(torch.tensor(index), n_sequences, n_positions)
    assert ids.shape == (n_sequences * len(index), n_positions)
    assert len(ids.unique()) == ids.numel()
    for q in range(n_sequences):
        for b, row in enumerate(index):
            expected = [row * (1 << 20) + q * (1 << 16) + t for t in range(n_positions)]
            assert ids[q * len(index) + b].tolist() == expected


def test_row_ids_at_the_limits():
    ids = row_ids(torch.tensor([0, 1]), 16, 1 << 16)
    assert int(ids[30].max()) < int(ids[1].min()) + (1 << 20)
    assert len(ids.unique()) == ids.numel()
    with pytest.raises(ValueError, match="max_length"):
        row_ids(torch.tensor([0]), 1, (1 << 16) + 1)
    with pytest.raises(ValueError, match="sequences"):
        row_ids(torch.tensor([0]), 17, 1)


def test_row_ids_of_an_int32_index_do_not_wrap():
    index = torch.tensor([2047, 2048, 500_000])
    assert torch.equal(row_ids(index.int(), 1, 2), row_ids(index, 1, 2))


def test_put_rows_equals_a_loop():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 4, 5, generator=generator)
    mask = torch.rand(3, 4, generator=generator) > 0.4
    rows = torch.randn(int(mask.sum()), 5, generator=generator)
    expected, kept = hidden.clone(), hidden.clone()
    k = 0
    for a in range(3):
        for t in range(4):
            if mask[a, t]:
                expected[a, t] = rows[k]
                k += 1
    assert torch.equal(put_rows(hidden, mask, rows), expected)
    assert torch.equal(hidden, kept)


def test_put_rows_casts_and_splits_the_gradient():
    hidden = torch.zeros(1, 3, 2, dtype=torch.float32, requires_grad=True)
    mask = torch.tensor([[True, False, True]])
    rows = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    out = put_rows(hidden, mask, rows)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert hidden.grad.tolist() == [[[0, 0], [1, 1], [0, 0]]]
    assert rows.grad.tolist() == [[1, 1], [1, 1]]


def test_scatter_is_found_in_each_cloud_beside_the_others():
    late = torch.ones(12, 3)
    late[11, 2] = 2.0  # past the few rows that are looked at first
    clouds = [torch.ones(9, 3), torch.eye(3), late, torch.eye(3)[:1], torch.zeros(0, 3)]
    clouds += [1e3 + 1e-6 * torch.eye(3)]  # rounding
    assert have_scatter(clouds) == [False, True, True, False, False, False]
    assert [has_scatter(x) for x in clouds] == have_scatter(clouds)
    assert have_scatter([]) == []
