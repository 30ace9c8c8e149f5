"""Groups and classes of embeddings against loops over groups, classes and pairs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.groups import (
    check_groups,
    class_ids,
    class_scatter,
    first_direction_share,
    hashed_order,
    sample_groups,
    stratified_folds,
)
from tests.clouds import cloud, light


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


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([4, -2, 4, 9]),
        torch.tensor([4.0, -2.0, 4.0, 9.0]),
        torch.tensor([4.0, -2.0, 4.0, 9.0], dtype=torch.bfloat16),
        torch.tensor([1, 0, 1, 3], dtype=torch.uint8),
    ],
)
def test_labels_become_numbers_in_their_order(labels):
    found = class_ids(labels, 4)
    assert found.dtype == torch.int64
    assert found.tolist() == [1, 0, 1, 2]


def test_label_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"got 2.5; slice a score into classes.*quantile"):
        class_ids(torch.tensor([1.0, 2.5, 3.0]), 3)
    for broken in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"got {broken}; slice"):
            class_ids(torch.tensor([1.0, 2.0, broken]), 3)
    with pytest.raises(ValueError, match=r"\[N\] = \[3\].*got shape \(2,\)"):
        class_ids(torch.tensor([1, 2]), 3)
    with pytest.raises(ValueError, match=r"got shape \(3, 1\)"):
        class_ids(torch.tensor([[1], [2], [3]]), 3)
    with pytest.raises(ValueError, match="two classes are needed, got 1 in 3 rows"):
        class_ids(torch.tensor([5, 5, 5]), 3)


@given(st.integers(2, 6), st.integers(2, 5), st.integers(0, 10_000))
@light
def test_folds_are_even_in_every_class_and_in_all(n_folds, n_classes, seed):
    generator = torch.Generator().manual_seed(seed)
    count_C = torch.randint(n_folds, 20, (n_classes,), generator=generator)
    classes = torch.arange(n_classes).repeat_interleave(count_C)
    classes = classes[torch.randperm(len(classes), generator=generator)]
    folds = stratified_folds(classes, n_folds, seed)
    for members in [folds, *(folds[classes == c] for c in range(n_classes))]:
        size_F = torch.bincount(members, minlength=n_folds)
        assert int(size_F.max() - size_F.min()) <= 1
        assert len(size_F) == n_folds


@given(st.integers(2, 4), st.integers(2, 4), st.integers(0, 10_000))
@light
def test_the_embeddings_of_an_example_lie_in_one_fold(n_folds, n_classes, seed):
    generator = torch.Generator().manual_seed(seed)
    class_E = torch.arange(n_folds * n_classes * 2) % n_classes
    example_N = torch.arange(len(class_E)).repeat_interleave(
        torch.randint(1, 5, (len(class_E),), generator=generator)
    )
    example_N = example_N[torch.randperm(len(example_N), generator=generator)]
    folds = stratified_folds(class_E[example_N], n_folds, seed, example_N * 7)
    fold_E = torch.stack([folds[example_N == e].unique() for e in range(len(class_E))])[:, 0]
    assert torch.equal(fold_E, stratified_folds(class_E, n_folds, seed))
    alone = torch.arange(len(class_E)).flip(0)
    assert torch.equal(stratified_folds(class_E, n_folds, seed, alone), fold_E)


def test_folds_deal_out_the_hashed_order_class_by_class():
    classes = torch.arange(40) % 3
    order = sorted(hashed_order(40, seed=7).tolist(), key=lambda i: int(classes[i]))
    folds = stratified_folds(classes, 4, seed=7)
    assert folds[order].tolist() == [place % 4 for place in range(40)]


def test_too_many_folds_say_how_many_rows_there_are():
    for n_folds in (1, 4):
        with pytest.raises(ValueError, match=f"smallest class, 3 here, got {n_folds}; lower"):
            stratified_folds(torch.tensor([0] * 9 + [1] * 3), n_folds)


def test_rounding_is_no_scatter():
    x = cloud(11, 5, seed=3, mean=7.3)
    same_means = class_scatter(x.repeat(2, 1), torch.arange(2).repeat_interleave(11))
    assert same_means.between.item() == 0.0
    assert same_means.within.item() > 1.0
    points = class_scatter(x.repeat(9, 1), torch.arange(11).repeat(9))
    assert points.within.item() == 0.0
    assert points.between.item() > 1.0
    equal = class_scatter(
        torch.full((50_000, 3), 0.1, dtype=torch.float64), torch.arange(50_000) % 2
    )
    assert equal.between.item() == equal.within.item() == 0.0
