"""Nearest neighbours against a loop over differences, also where float32 cannot rank them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry import neighbours
from isotrain.geometry.neighbours import nearest_neighbours
from tests.clouds import cloud, light


def loop(x, k, queries=None):
    """Distances of the k nearest other rows, row by row from differences."""
    points = x.double().numpy()
    found = []
    for q in range(len(points)) if queries is None else queries.tolist():
        distance = np.sqrt(((points - points[q]) ** 2).sum(axis=1))
        found.append(np.sort(np.delete(distance, q))[:k])
    return torch.tensor(np.array(found))


def check(x, k, queries=None, rtol=1e-12):
    found = nearest_neighbours(x, k, queries)
    torch.testing.assert_close(found.distance_QK, loop(x, k, queries), rtol=rtol, atol=0.0)
    rows = torch.arange(len(x)) if queries is None else queries
    assert not bool((found.index_QK == rows[:, None]).any())
    again = (x.double()[rows, None] - x.double()[found.index_QK]).norm(dim=2)
    torch.testing.assert_close(found.distance_QK, again, rtol=rtol, atol=0.0)
    assert all(len(set(row)) == k for row in found.index_QK.tolist())
    return found


@pytest.fixture
def opened(monkeypatch):
    """How many queries were measured against all rows."""
    count = []
    original = neighbours._by_differences

    def counting(a, b):
        if a.ndim == 2:
            count.append(len(a))
        return original(a, b)

    monkeypatch.setattr(neighbours, "_by_differences", counting)
    return count


@pytest.mark.parametrize(
    ("n", "d", "k"), [(2, 1, 1), (3, 5, 2), (40, 3, 5), (300, 20, 100), (150, 400, 7), (60, 2, 59)]
)
def test_equals_the_loop(n, d, k):
    check(cloud(n, d, seed=n), k)


def test_queries_are_rows_by_number_in_any_order_and_repeated():
    check(cloud(50, 4), 6, torch.tensor([49, 0, 7, 7]))


def test_the_query_is_left_out_by_number_so_duplicates_stay():
    x = torch.cat([cloud(40, 3), cloud(40, 3), cloud(40, 3)])
    found = check(x, 5)
    assert bool((found.distance_QK[:, :2] == 0.0).all())
    assert bool((found.distance_QK[:, 2] > 0.0).all())
    for row, near in enumerate(found.index_QK[:, :2].tolist()):
        assert sorted(near) == sorted({row % 40, row % 40 + 40, row % 40 + 80} - {row})


@pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-9])
def test_clusters_far_tighter_than_the_cloud(width, opened):
    centre = cloud(6, 8, seed=1).repeat_interleave(60, dim=0)
    check(centre + width * cloud(360, 8, seed=2), 10)
    assert width > 1e-4 or sum(opened) > 0


def test_near_ties_below_float32_are_ranked(opened):
    n, d = 500, 30
    direction = torch.nn.functional.normalize(cloud(n, d, seed=3))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(4))
    radius = 1.0 + 1e-9 * order.double()
    x = torch.cat([direction.new_zeros(1, d), direction * radius[:, None]])
    found = check(x, 50, torch.tensor([0]))
    assert found.index_QK[0].tolist() == (order.argsort()[:50] + 1).tolist()
    assert opened == [1]


@pytest.mark.parametrize("offset", [16_000.0, -1e7])
def test_a_far_mean_costs_no_digits_and_no_time(offset, opened):
    x = cloud(300, 16, seed=5) + offset / 4.0
    check(x, 12)
    assert opened == []
    check(x.float(), 12)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_extreme_scales(scale):
    x = cloud(100, 5, seed=7)
    found = nearest_neighbours(x * scale, 30).distance_QK
    torch.testing.assert_close(found / scale, loop(x, 30), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("block", [1, 5_000, 1 << 40])
def test_blocks_change_nothing(block, monkeypatch):
    x = cloud(200, 12, seed=8)
    monkeypatch.setattr(neighbours, "BLOCK_BYTES", block)
    monkeypatch.setattr(neighbours, "GATHER_BYTES", block)
    check(x, 11)


@given(st.integers(2, 40), st.integers(1, 6), st.integers(0, 10_000), st.booleans())
@light
def test_any_cloud(n, d, seed, coarse):
    generator = torch.Generator().manual_seed(seed)
    x = cloud(n, d, seed) * 10.0 ** (6.0 * torch.rand(n, 1, generator=generator).double() - 3.0)
    if coarse:  # ties and duplicates
        x = x.round()
    check(x, int(torch.randint(1, n, (), generator=generator)))


def as_bfloat16(x):
    return x.bfloat16().float()


def as_tf32(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    ("rounded", "expected"), [(None, "float32"), (as_tf32, "float64"), (as_bfloat16, "float64")]
)
def test_products_are_never_coarser_than_float32(rounded, expected, autocast, monkeypatch):
    dtypes = []
    original = torch.addmm

    def watched(c, a, b, **options):
        if rounded and a.dtype == torch.float32:
            a, b = rounded(a), rounded(b)
        product = original(c, a, b, **options)
        dtypes.append({str(part.dtype) for part in (c, a, b, product)})
        return product

    monkeypatch.setattr(torch, "addmm", watched)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        check(cloud(400, 3, seed=9), 15)
    assert dtypes[0] == {"torch.float32"}  # the one that is measured
    assert len(dtypes) > 1
    assert all(found == {f"torch.{expected}"} for found in dtypes[1:])


@pytest.mark.parametrize("k", [0, 10, 11])
def test_errors(k):
    with pytest.raises(ValueError, match=rf"\[1, 9\], got {k}"):
        nearest_neighbours(cloud(10, 2), k)
