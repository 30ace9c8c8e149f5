"""K-means of directions against slow loops. N rows, D dimensions, K clusters."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.kmeans import kmeans, nearest_direction, spherical_kmeans

light = settings(max_examples=25)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def normal(n, d, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=seeded(seed), dtype=dtype)


def cosine(row, other):
    length = math.sqrt(sum(a * a for a in row)) * math.sqrt(sum(b * b for b in other))
    return sum(a * b for a, b in zip(row, other, strict=True)) / length if length else 0.0


def by_loops(rows, centroids, n_iterations):
    """Assignments and centroids, row by row; the mean direction of each cluster."""

    def owners():
        return [max(range(len(centroids)), key=lambda c: cosine(r, centroids[c])) for r in rows]

    owner = owners()
    for _ in range(n_iterations):
        for c in range(len(centroids)):
            members = [r for r, own in zip(rows, owner, strict=True) if own == c and any(r)]
            if members:
                units = [[a / math.hypot(*r) for a in r] for r in members]
                total = [sum(column) for column in zip(*units, strict=True)]
                direction = [a / math.hypot(*total) for a in total]
                centroids = [*centroids[:c], direction, *centroids[c + 1 :]]
        owner = owners()
    return owner, centroids


def objective(x, found):
    return (unit_rows(x) * found.centroid_KD[found.assignment_N]).sum().item()


@pytest.mark.parametrize("n_iterations", [0, 1, 2, 50])
@pytest.mark.parametrize(("n", "d", "k"), [(60, 3, 4), (40, 2, 3), (12, 30, 5), (30, 1, 2)])
def test_equals_slow_loops_from_the_same_start(n, d, k, n_iterations):
    x = normal(n, d, seed=n) * (1.0 + torch.arange(n)[:, None])
    x[3] = 0.0
    init = normal(k, d, seed=1)
    owner, centroids = by_loops(x.tolist(), unit_rows(init).tolist(), n_iterations)
    found = spherical_kmeans(x, k, init=3.0 * init, n_iterations=n_iterations)
    assert found.assignment_N.tolist() == owner
    torch.testing.assert_close(
        found.centroid_KD, torch.tensor(centroids, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert found.count_K.tolist() == [owner.count(c) for c in range(k)]


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9), st.integers(0, 10_000))
@light
def test_result_is_consistent_for_any_shape(n, d, k, seed):
    x = normal(n, d, seed)
    found = spherical_kmeans(x, k, generator=seeded(seed), n_iterations=200)
    length_K = found.centroid_KD.norm(dim=1)
    torch.testing.assert_close(length_K, torch.ones(k, dtype=torch.float64))
    cosine_NK = unit_rows(x) @ found.centroid_KD.T
    own_N = cosine_NK.gather(1, found.assignment_N[:, None])[:, 0]
    assert bool((own_N >= cosine_NK.max(dim=1).values - 1e-9).all())
    assert torch.equal(nearest_direction(x, found.centroid_KD), found.assignment_N)
    assert found.count_K.tolist() == [int((found.assignment_N == c).sum()) for c in range(k)]
    for c in range(k):  # converged: the direction of the sum of the cluster's unit rows
        if found.count_K[c] > 0:
            total_D = unit_rows(x)[found.assignment_N == c].sum(dim=0)
            expected_D = total_D / total_D.norm()
            torch.testing.assert_close(found.centroid_KD[c], expected_D, atol=1e-9, rtol=0)


@given(st.integers(0, 10_000))
@light
def test_the_length_of_a_row_has_no_influence(seed):
    x = normal(50, 4, seed)
    exponent_N = torch.randint(-40, 40, (50,), generator=seeded(seed))
    scaled = x * torch.exp2(exponent_N.double())[:, None]  # powers of two: nothing is rounded
    one, two = (spherical_kmeans(rows, 4, generator=seeded(1)) for rows in (x, scaled))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert torch.equal(nearest_direction(x, x[:5]), nearest_direction(scaled, 8.0 * scaled[:5]))


def test_the_objective_never_falls_with_more_iterations():
    x = normal(400, 6, seed=3)
    values = [objective(x, spherical_kmeans(x, 6, init=x[:6], n_iterations=n)) for n in range(12)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values))
    assert values[-1] > values[0] + 1.0


def test_finds_placed_directions_that_lengths_hide_from_kmeans():
    axis_KD = torch.eye(3, 5, dtype=torch.float64)
    owner_N = torch.arange(60) % 3
    length_N = torch.tensor([1.0, 300.0])[torch.arange(60) // 30].double()
    x = length_N[:, None] * (axis_KD[owner_N] + 0.05 * normal(60, 5, seed=4))
    found = spherical_kmeans(x, 3, generator=seeded(0))
    assert found.count_K.tolist() == [20, 20, 20]
    names_K = found.assignment_N[:3]
    assert torch.equal(found.assignment_N, names_K[owner_N])
    torch.testing.assert_close(found.centroid_KD[names_K], axis_KD, atol=0.05, rtol=0)
    by_length = kmeans(x, 3, generator=seeded(0)).assignment_N
    assert len(by_length[:30].unique()) == 1  # all short rows in one cluster


def test_a_zero_row_goes_to_cluster_0_and_moves_no_centroid():
    x = normal(30, 3, seed=5)
    plain = spherical_kmeans(x, 4, init=x[:4])
    zero_MD = torch.zeros(7, 3, dtype=torch.float64)
    found = spherical_kmeans(torch.cat([zero_MD, x]), 4, init=x[:4])
    torch.testing.assert_close(found.centroid_KD, plain.centroid_KD, rtol=0, atol=1e-12)
    assert found.assignment_N.tolist() == [0] * 7 + plain.assignment_N.tolist()
    assert (found.count_K - plain.count_K).tolist() == [7, 0, 0, 0]


@pytest.mark.parametrize("seed", range(8))
def test_a_zero_row_is_never_drawn_as_a_centroid(seed):
    x = torch.cat([torch.zeros(50, 3), torch.eye(3)])
    found = spherical_kmeans(x, 3, generator=seeded(seed), n_iterations=0)
    assert found.centroid_KD.sort(dim=0).values.tolist() == torch.eye(3).sort(dim=0).values.tolist()
    assert found.count_K.tolist() == [51, 1, 1]


@pytest.mark.parametrize("k", [1, 3])
def test_only_zero_rows(k):
    found = spherical_kmeans(torch.zeros(4, 2), k, generator=seeded(0))
    assert found.assignment_N.tolist() == [0] * 4
    assert found.count_K.tolist() == [4] + [0] * (k - 1)
    assert not found.centroid_KD.any()
    kept = spherical_kmeans(torch.zeros(4, 2), 2, init=torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    assert kept.centroid_KD.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_a_cluster_that_cancels_keeps_its_centroid():
    x = torch.tensor([[1.0, 0.0, 0.1], [-1.0, 0.0, -0.1], [0.0, -1.0, 0.0]])
    init = torch.tensor([[0.0, 5.0, 0.0], [0.0, -2.0, 0.0]])
    found = spherical_kmeans(x, 2, init=init)
    assert found.centroid_KD.tolist() == [[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]
    assert found.assignment_N.tolist() == [0, 0, 1]


def test_an_empty_cluster_keeps_its_centroid():
    x = normal(30, 2, seed=6).abs()
    found = spherical_kmeans(x, 2, init=torch.tensor([[1.0, 1.0], [-3.0, -4.0]]).double())
    assert found.count_K.tolist() == [30, 0]
    torch.testing.assert_close(found.centroid_KD[1], torch.tensor([-0.6, -0.8]).double())


def test_fewer_rows_than_clusters_duplicates_and_one_row():
    few = spherical_kmeans(normal(3, 5, seed=7), 8, generator=seeded(0))
    assert int((few.count_K > 0).sum()) == 3
    torch.testing.assert_close(few.centroid_KD.norm(dim=1), torch.ones(8).double())
    x = torch.tensor([[1.0, 2.0], [-3.0, 4.0]]).repeat(10, 1)
    assert spherical_kmeans(x, 2, generator=seeded(0)).count_K.tolist() == [10, 10]
    same = spherical_kmeans(torch.full((12, 3), 0.1), 4, generator=seeded(0))
    assert int((same.count_K > 0).sum()) == 1
    single = spherical_kmeans(torch.tensor([[3.0, 4.0]]), 1)
    torch.testing.assert_close(single.centroid_KD, torch.tensor([[0.6, 0.8]]))


def test_one_cluster_is_the_mean_direction_and_needs_no_start():
    x = normal(50, 7, seed=8) + 1.0
    found = spherical_kmeans(x, 1)
    expected_D = unit_rows(x).mean(dim=0)
    torch.testing.assert_close(found.centroid_KD[0], expected_D / expected_D.norm())
    assert found.count_K.tolist() == [50]


@pytest.mark.parametrize("mean", [1e2, 1e4])
def test_a_narrow_cone_in_float32_equals_float64(mean):
    x = normal(300, 64, seed=9, dtype=torch.float32)
    x[:, 0] += mean
    init = x[:5] + normal(5, 64, seed=10, dtype=torch.float32)
    single = nearest_direction(x, unit_rows(init))
    assert torch.equal(single, nearest_direction(x.double(), unit_rows(init).double()))
    assert len(single.unique()) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_dtype(dtype):
    found = spherical_kmeans(normal(20, 3, seed=11).to(dtype), 3, generator=seeded(0))
    assert found.centroid_KD.dtype == dtype


@pytest.mark.parametrize("width", [3, 64, 768])
@pytest.mark.parametrize("k", [2, 5, 9, 17])
def test_the_lower_index_wins_a_tie_for_any_number_of_rows(width, k):
    centroid_KD = normal(k, width, seed=12, dtype=torch.float32)
    centroid_KD[1:] -= 20.0 * centroid_KD[0]  # rows lie near the first, and its copy at the end
    centroid_KD[k - 1] = 4.0 * centroid_KD[0]
    x = centroid_KD[0] + 0.1 * normal(64, width, seed=13, dtype=torch.float32)
    for n in (1, 2, 3, 7, 64):
        assert nearest_direction(x[:n], centroid_KD).tolist() == [0] * n


def test_same_generator_same_result_and_the_global_state_is_not_read():
    x = normal(100, 3, seed=14)
    before = torch.random.get_rng_state()
    one, two = (spherical_kmeans(x, 6, generator=seeded(1)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert torch.equal(before, torch.random.get_rng_state())
    other = spherical_kmeans(x, 6, generator=seeded(2), n_iterations=1)
    assert not torch.equal(one.centroid_KD, other.centroid_KD)


def test_carries_no_gradient_and_leaves_its_input():
    x = normal(20, 3, seed=15).requires_grad_()
    kept = x.detach().clone()
    assert not spherical_kmeans(x, 2, generator=seeded(0)).centroid_KD.requires_grad
    assert torch.equal(kept, x.detach())


@pytest.mark.parametrize(
    ("x", "options", "words"),
    [
        (torch.zeros(0, 3), {"n_clusters": 1}, "N > 0"),
        (torch.ones(3, 2), {"n_clusters": 0}, "n_clusters"),
        (torch.ones(3, 2), {"n_clusters": 2, "init": torch.zeros(2, 3)}, "init"),
        (torch.ones(3, 2), {"n_clusters": 2}, "generator"),
    ],
)
def test_errors_name_what_is_wrong(x, options, words):
    with pytest.raises(ValueError, match=words):
        spherical_kmeans(x, **options)
