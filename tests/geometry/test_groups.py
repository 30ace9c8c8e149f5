"""Groups of rows against loops over groups and pairs."""

import math

import numpy as np
import pytest
import torch

from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import (
    check_groups,
    first_direction_share,
    group_mean_cosine,
    group_sums,
    hashed_order,
    large_groups,
    mean_cosine_between,
    sample_groups,
    summary,
)


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + mean


def names(n, n_groups, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(n_groups, (n,), generator=generator) * 7 - 3


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def test_groups_are_found_under_any_names():
    found = check_groups(torch.zeros(5, 1), torch.tensor([2**62, -5, 2**62, 0, -5]))
    assert found.id_G.tolist() == [-5, 0, 2**62]
    assert found.index_N.tolist() == [2, 0, 2, 1, 0]
    assert found.count_G.tolist() == [2, 1, 2]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_every_integer_type_names_groups(dtype):
    found = check_groups(torch.zeros(3, 1), torch.tensor([1, 0, 1], dtype=dtype))
    assert found.id_G.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_names_that_are_no_integers_are_refused(dtype):
    with pytest.raises(ValueError, match=f"integers, got {dtype}"):
        check_groups(torch.zeros(3, 1), torch.ones(3, dtype=dtype))


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1)])
def test_groups_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        check_groups(torch.zeros(3, 1), torch.zeros(shape, dtype=torch.int64))


def test_the_largest_group_is_named_when_none_is_large_enough():
    found = check_groups(torch.zeros(4, 1), torch.tensor([8, 9, 9, 7]))
    assert large_groups(found, 2).tolist() == [False, False, True]
    with pytest.raises(ValueError, match="no group has 3 rows: the largest is group 9 with 2; buy"):
        large_groups(found, 3, "buy more")


def test_sums_are_the_sums_of_a_loop():
    x, groups = cloud(30, 4), names(30, 5)
    found = check_groups(x, groups)
    for g, name in enumerate(found.id_G):
        torch.testing.assert_close(group_sums(x, found)[g], x[groups == name].sum(dim=0))


@pytest.mark.parametrize("min_count", [2, 6])
@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_mean_cosine_inside_groups_is_the_loop_over_pairs(min_count, mean):
    x, groups = cloud(40, 5, mean=mean), names(40, 7)
    x[3] *= 1e6
    found = group_mean_cosine(x, groups, min_count)
    expected = {}
    for name in groups.unique().tolist():
        rows = x[groups == name]
        n = len(rows)
        if n >= min_count:
            pairs = [cosine(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j]
            expected[name] = (n, sum(pairs) / len(pairs))
    assert 0 < len(expected) < 7 or min_count == 2
    assert found.id_G.tolist() == list(expected)
    assert found.count_G.tolist() == [n for n, _ in expected.values()]
    assert found.value_G.tolist() == pytest.approx([v for _, v in expected.values()], abs=1e-13)


def test_one_group_is_the_whole_cloud_and_one_row_is_no_pair():
    x = cloud(9, 3)
    whole = group_mean_cosine(x, torch.zeros(9, dtype=torch.int64))
    assert whole.value_G.item() == pytest.approx(mean_pairwise_cosine(x).item(), abs=1e-14)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        group_mean_cosine(x, names(9, 2), min_count=1)


def test_mean_cosine_between_groups_is_the_loop_over_pairs():
    x, groups = cloud(25, 4, mean=0.7), names(25, 4)
    x[5] = 0.0  # cosine 0
    pairs = [
        0.0 if 5 in (i, j) else cosine(x[i], x[j])
        for i in range(25)
        for j in range(25)
        if groups[i] != groups[j]
    ]
    assert mean_cosine_between(x, groups).item() == pytest.approx(np.mean(pairs), abs=1e-13)
    with pytest.raises(ValueError, match="at least 2 groups, got 1"):
        mean_cosine_between(x, torch.zeros(25, dtype=torch.int64))


def test_gradients():
    x, groups = cloud(8, 3).requires_grad_(), torch.tensor([0, 1, 0, 1, 0, 1, 2, 0])
    assert torch.autograd.gradcheck(lambda x: group_mean_cosine(x, groups).value_G, x)
    assert torch.autograd.gradcheck(lambda x: mean_cosine_between(x, groups), x)
    for center in (False, True):
        share = lambda x, center=center: first_direction_share(x.reshape(2, 4, 3), center)  # noqa: E731
        assert torch.autograd.gradcheck(share, x)


def test_the_order_is_a_fixed_permutation_per_seed():
    order = hashed_order(1000, seed=3)
    assert order.sort().values.tolist() == list(range(1000))
    assert torch.equal(order, hashed_order(1000, seed=3))
    for other in (0, 4, ~3, -3, 2**60):
        assert (order == hashed_order(1000, seed=other)).sum() < 15
    # No trend: a random permutation has rank correlation 0 ± 0.03 with the positions.
    place = order.double() - 499.5
    trend = (place @ (torch.arange(1000.0, dtype=torch.float64) - 499.5)) / place.square().sum()
    assert abs(float(trend)) < 0.1


def test_a_sample_has_distinct_rows_of_its_group():
    groups = names(200, 9)
    found = check_groups(torch.zeros(200, 1), groups)
    chosen_G = found.count_G >= 20
    assert 0 < chosen_G.sum() < 9
    sample_Sn = sample_groups(found, chosen_G, 20, seed=1)
    assert sample_Sn.shape == (int(chosen_G.sum()), 20)
    for name, row in zip(found.id_G[chosen_G], sample_Sn, strict=True):
        assert set(groups[row].tolist()) == {int(name)}
        assert len(set(row.tolist())) == 20


def test_a_sample_does_not_know_the_names_and_every_row_has_its_chance():
    groups = torch.tensor([0, 0, 0, 1, 1])
    found, renamed = (check_groups(torch.zeros(5, 1), g) for g in (groups, 5 - groups))
    both = torch.tensor([True, True])
    drawn = torch.zeros(5)
    for seed in range(300):
        sample = sample_groups(found, both, 1, seed)
        assert torch.equal(sample, sample_groups(renamed, both, 1, seed).flip(0))
        drawn[sample.flatten()] += 1
    assert drawn[:3].tolist() == pytest.approx([100] * 3, abs=40)
    assert drawn[3:].tolist() == pytest.approx([150] * 2, abs=45)


@pytest.mark.parametrize(("n", "d"), [(5, 12), (5, 5), (12, 5), (2, 1), (1, 3)])
@pytest.mark.parametrize("center", [False, True])
def test_share_of_the_first_direction_is_that_of_the_singular_values(n, d, center):
    x = cloud(4 * n, d, mean=0.5).reshape(4, n, d)
    for rows, found in zip(x.numpy(), first_direction_share(x, center), strict=True):
        rows = rows - rows.mean(axis=0) * center
        energy = np.linalg.svd(rows, compute_uv=False) ** 2
        expected = energy[0] / energy.sum() if n > 1 or not center else 1.0
        assert found.item() == pytest.approx(expected, abs=1e-13)


def test_share_of_sets_without_scatter_and_at_extreme_scales():
    x = torch.stack([torch.zeros(4, 3), torch.full((4, 3), 0.1), torch.ones(4, 3) * -1e-200])
    assert first_direction_share(x.double(), center=True).tolist() == [1.0, 1.0, 1.0]
    for n in range(2, 60):  # what rounding leaves of equal rows is one direction
        equal = torch.full((1, n, 3), 16_000.3, dtype=torch.float64)
        assert first_direction_share(equal, center=True).item() == pytest.approx(1.0, abs=1e-12)
    assert first_direction_share(x.double()).tolist() == pytest.approx([1.0] * 3, abs=1e-14)
    rows = cloud(5, 3)
    expected = first_direction_share(rows[None]).item()
    for scale in (1e-200, 1e200):
        assert first_direction_share(rows[None] * scale).item() == pytest.approx(expected)


def test_a_mean_of_norm_16000_keeps_the_digits_of_the_centred_share():
    x = cloud(10, 16)
    far = x + 4000.0
    expected = first_direction_share(x[None], center=True).item()
    assert first_direction_share(far[None], center=True).item() == pytest.approx(
        expected, abs=1e-10
    )


def test_summary():
    value_G = torch.tensor([0.1, 0.2, 0.6], dtype=torch.float64)
    found = {k: v.item() for k, v in summary(value_G, value_G[0]).items()}
    assert found == pytest.approx(
        {
            "value": 0.3,
            "baseline": 0.1,
            "adjusted": 0.2,
            "n_groups": 3.0,
            "standard_error": np.std([0.1, 0.2, 0.6], ddof=1) / math.sqrt(3),
        }
    )
    assert "standard_error" not in summary(value_G[:1], value_G[0])
