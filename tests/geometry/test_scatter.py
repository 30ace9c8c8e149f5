"""Class numbers, folds and scatter against loops over classes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.groups import hashed_order
from isotrain.geometry.scatter import class_ids, class_scatter, stratified_folds
from tests.clouds import cloud, light


def scatters(x, classes):
    """S_B and S_W, class by class."""
    mean_D = x.mean(dim=0)
    between, within = torch.zeros(2, x.shape[1], x.shape[1], dtype=x.dtype)
    for c in classes.unique():
        rows = x[classes == c]
        offset_D = rows.mean(dim=0) - mean_D
        between += len(rows) * torch.outer(offset_D, offset_D)
        for row in rows:
            within += torch.outer(row - rows.mean(dim=0), row - rows.mean(dim=0))
    return between, within


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


def test_folds_deal_out_the_hashed_order_class_by_class():
    classes = torch.arange(40) % 3
    order = sorted(hashed_order(40, seed=7).tolist(), key=lambda i: int(classes[i]))
    folds = stratified_folds(classes, 4, seed=7)
    assert folds[order].tolist() == [place % 4 for place in range(40)]


def test_too_many_folds_say_how_many_rows_there_are():
    for n_folds in (1, 4):
        with pytest.raises(ValueError, match=f"smallest class, 3 here, got {n_folds}; lower"):
            stratified_folds(torch.tensor([0] * 9 + [1] * 3), n_folds)


@pytest.mark.parametrize(("n", "d", "c"), [(10, 3, 2), (40, 8, 5), (12, 30, 3), (200, 4, 7)])
@pytest.mark.parametrize("mean", [0.0, 16_000.0])
def test_is_the_loop_over_classes(n, d, c, mean):
    x = cloud(n, d, seed=n)
    classes = torch.arange(n) % c
    found = class_scatter(x + mean, classes)
    between, within = scatters(x, classes)
    torch.testing.assert_close(found.between_CD.T @ found.between_CD, between, rtol=0, atol=1e-8)
    assert found.between.item() == pytest.approx(between.trace().item(), rel=1e-9)
    assert found.within.item() == pytest.approx(within.trace().item(), rel=1e-9)
    total = (x - x.mean(dim=0)).square().sum().item()
    assert (found.between + found.within).item() == pytest.approx(total, rel=1e-9)
    torch.testing.assert_close(found.centred_ND, x - x.mean(dim=0), rtol=0, atol=1e-10)
    assert float(found.centred_ND.mean(dim=0).abs().max()) < 1e-15


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


def test_gradient():
    classes = torch.tensor([0, 1, 1, 0, 2, 2])
    x = cloud(6, 3, seed=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: class_scatter(x, classes)[:3], x)
