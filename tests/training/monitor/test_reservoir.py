"""The reservoir keeps the rows of smallest hash, for any order and batching. M budget."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.rows import hash_ids
from isotrain.training.monitor.sampling import Reservoir

light = settings(max_examples=25)


def rows_of(ids, g=0, width=3):
    """A row that names its id and cloud."""
    return torch.stack([ids.float() + 0.25 * g] * width, dim=1)


def smallest(ids, budget):
    """The ids of smallest hash, by sorting all of them."""
    return sorted(ids.tolist(), key=lambda i: int(hash_ids(torch.tensor([i]))))[:budget]


def fed(ids, sizes, budget, n_clouds=2):
    reservoir = Reservoir(budget)
    for part in ids.split(sizes):
        reservoir.add(part, [rows_of(part, g) for g in range(n_clouds)], [part, part.double() / 3])
    return reservoir


def clouds_of(reservoir):
    return [reservoir.cloud(g) for g in range(reservoir.n_clouds)]


@given(st.data(), st.integers(2, 12), st.integers(0, 40), st.integers(0, 1000))
@light
def test_same_rows_for_any_order_and_batching(data, budget, n, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(10_000, generator=generator)[:n] * 77
    sizes = []
    while sum(sizes) < n:
        sizes.append(min(data.draw(st.integers(1, 15)), n - sum(sizes)))
    shuffled = ids[torch.randperm(n, generator=generator)]
    reservoir = fed(shuffled, sizes, budget)
    expected = torch.tensor(smallest(ids, budget), dtype=torch.int64)
    assert len(reservoir) == min(n, budget)
    if n:
        assert torch.equal(reservoir.ids, expected)
    for g, cloud in enumerate(clouds_of(reservoir)):
        assert torch.equal(cloud, rows_of(expected, g))


def test_facts_keep_their_own_type():
    """Class numbers and token ids are whole numbers of any size, scores are floats."""
    ids = torch.arange(1000) + (1 << 40)
    reservoir = fed(ids, 90, budget=20)
    assert torch.equal(reservoir.fact(0), reservoir.ids)
    assert torch.equal(reservoir.fact(1), reservoir.ids.double() / 3)


@pytest.mark.parametrize("size", [1, 3, 64, 1000])
def test_equals_brute_force_on_a_long_stream(size):
    ids = torch.arange(1000) * 13
    reservoir = fed(ids, size, budget=64, n_clouds=1)
    assert torch.equal(reservoir.cloud(0), rows_of(torch.tensor(smallest(ids, 64))))


def test_rows_are_float32_copies_without_a_graph():
    source = torch.ones(4, 2, dtype=torch.bfloat16, requires_grad=True)
    reservoir = Reservoir(4)
    reservoir.add(torch.arange(4), [source])
    (cloud,) = clouds_of(reservoir)
    assert cloud.dtype == torch.float32
    assert not cloud.requires_grad
    full = torch.zeros(4, 2)
    reservoir = Reservoir(4)
    reservoir.add(torch.arange(4), [full])
    full.fill_(9.0)
    assert not bool(reservoir.cloud(0).any())


def test_clouds_may_differ_in_width_and_nothing_seen_is_empty():
    reservoir = Reservoir(3)
    assert (len(reservoir), clouds_of(reservoir)) == (0, [])
    reservoir.add(torch.zeros(0, dtype=torch.int64), [torch.zeros(0, 2), torch.zeros(0, 5)])
    ids = torch.arange(6)
    reservoir.add(ids, [rows_of(ids, 0, 2), rows_of(ids, 1, 5)])
    assert [cloud.shape for cloud in clouds_of(reservoir)] == [(3, 2), (3, 5)]
