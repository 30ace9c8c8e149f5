"""Protected directions against the SVD of class means, quantile loops, and their contract.

N rows, D dimensions, C classes, J protected directions.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.protected import N_BETWEEN, fit_protected, returned_share
from isotrain.transforms.protected_cluster_pca import ProtectedClusterPCA
from tests.clouds import correlated, light, seeded


def cloud(n=90, d=10, seed=0, dtype=torch.float64):
    return correlated(n, d, seed, 2.0, dtype)


def classes(n_classes, n=90, d=10, seed=0, dtype=torch.float64):
    """Rows of classes of unequal size with means far apart, and their labels."""
    labels = torch.randint(0, n_classes, (n,), generator=seeded(seed + 5))
    labels[:n_classes] = torch.arange(n_classes)
    means = 4.0 * torch.randn(n_classes, d, generator=seeded(seed + 6), dtype=torch.float64)
    return cloud(n, d, seed, dtype) + means[labels].to(dtype), labels


def weighted_class_means(x, labels):
    """√n_c·(m_c − m) of each class, by a loop."""
    points, owner = x.double().numpy(), labels.numpy()
    mean = points.mean(axis=0)
    rows = [
        math.sqrt((owner == c).sum()) * (points[owner == c].mean(axis=0) - mean)
        for c in np.unique(owner)
    ]
    return np.stack(rows)


def projector(basis):
    basis = torch.as_tensor(np.ascontiguousarray(basis), dtype=torch.float64)
    return basis @ basis.T


def n_real(direction):
    return int(direction.square().sum().round())


def real(direction):
    """The columns that are not zero, after a look that they are orthonormal."""
    columns = direction[:, direction.any(dim=0)]
    eye = torch.eye(columns.shape[1], dtype=direction.dtype)
    torch.testing.assert_close(columns.T @ columns, eye, atol=1e-5, rtol=0)
    return columns.double()


# --- which directions -------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "n_between"), [(2, 1), (3, 2), (5, 4), (6, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_between_class_directions_are_those_of_the_weighted_class_means(
    n_classes, n_between, dtype
):
    x, labels = classes(n_classes, dtype=dtype)
    found = fit_protected(x, 0, labels)
    axes = np.linalg.svd(weighted_class_means(x, labels))[2][:n_between]
    assert found.direction_DJ.shape == (10, N_BETWEEN)
    assert n_real(found.direction_DJ) == n_between
    close = {"atol": 1e-4 if dtype == torch.float32 else 1e-10, "rtol": 0.0}
    torch.testing.assert_close(projector(real(found.direction_DJ)), projector(axes.T), **close)
    for number in range(n_between):  # the strongest first
        overlap = float((found.direction_DJ[:, number].double() @ torch.tensor(axes[number])).abs())
        assert overlap == pytest.approx(1.0, abs=1e-4)
    torch.testing.assert_close(found.mean_D, x.mean(dim=0))


@pytest.mark.parametrize("n", [7, 40, 101])
def test_scores_are_cut_into_fifths(n):
    x = cloud(n)
    scores = 5.0 * torch.rand(n, generator=seeded(3))
    order, slices = scores.argsort().tolist(), torch.zeros(n, dtype=torch.long)
    for rank, row in enumerate(order):
        slices[row] = min(4, math.ceil(5.0 * rank / (n - 1)) - 1) if rank else 0
    by_score = fit_protected(x, 0, scores)
    by_slice = fit_protected(x, 0, slices)
    assert n_real(by_score.direction_DJ) == 4
    torch.testing.assert_close(
        projector(real(by_score.direction_DJ)), projector(real(by_slice.direction_DJ))
    )


@pytest.mark.parametrize("labelled", [False, True])
def test_the_leading_directions_are_those_of_what_remains(labelled):
    x, labels = classes(2)
    found = fit_protected(x, 3, labels if labelled else None)
    points = (x - x.mean(dim=0)).numpy()
    axes = []
    if labelled:
        axes = [np.linalg.svd(weighted_class_means(x, labels))[2][0]]
        points = points - np.outer(points @ axes[0], axes[0])
    axes = np.stack([*axes, *np.linalg.svd(points, full_matrices=False)[2][:3]])
    columns = real(found.direction_DJ)
    overlap = (columns.T @ torch.tensor(axes.T)).abs()
    torch.testing.assert_close(overlap, torch.eye(len(axes)).double(), atol=1e-9, rtol=0)
    if labelled:  # the class axis stands first, and what is led by it alone was not the same
        alone = fit_protected(x, 3, None)
        assert float((projector(real(alone.direction_DJ)) - projector(columns)).norm()) > 0.5


# --- how many ---------------------------------------------------------------------------------


@given(
    st.integers(1, 12),
    st.integers(2, 8),
    st.integers(1, 7),
    st.integers(0, 9),
    st.booleans(),
    st.integers(0, 10_000),
)
@light
def test_directions_are_orthonormal_for_any_shape(n, d, n_classes, n_leading, single, seed):
    x = cloud(n, d, seed, torch.float32 if single else torch.float64)
    labels = torch.randint(0, n_classes, (n,), generator=seeded(seed))
    found = fit_protected(x, n_leading, labels)
    rank = min(n - 1, d)
    most_between = min(N_BETWEEN, rank, len(labels.unique()) - 1)
    assert n_real(found.direction_DJ) == min(rank, most_between + n_leading)
    assert real(found.direction_DJ).shape[1] == n_real(found.direction_DJ)
    assert found.direction_DJ.dtype == x.dtype
    assert found.direction_DJ.shape[1] == n_leading + N_BETWEEN


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mean", [0.0, 5.0])
def test_classes_of_equal_rows_leave_no_leading_direction(dtype, mean):
    labels = torch.arange(40) % 2
    axis = torch.randn(6, generator=seeded(0), dtype=dtype)
    x = (2.0 * labels[:, None].to(dtype) - 1.0) * axis + mean
    found = fit_protected(x, 2, labels)
    assert real(found.direction_DJ).shape[1] == 1


def test_the_mean_carries_a_gradient_and_directions_do_not():
    x, labels = classes(3)
    before = torch.random.get_rng_state()
    found = fit_protected(x.requires_grad_(), 2, labels)
    assert not found.direction_DJ.requires_grad
    found.mean_D.sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1 / 90))
    assert torch.equal(before, torch.random.get_rng_state())


# --- what comes back --------------------------------------------------------------------------


@given(st.integers(2, 30), st.integers(3, 9), st.integers(1, 3), st.integers(0, 10_000))
@light
def test_the_share_brings_the_variance_to_the_noise_floor_and_never_above(n, d, j, seed):
    j = min(j, d - 1)
    x = cloud(n, d, seed)
    basis = torch.linalg.qr(torch.randn(d, j, generator=seeded(seed), dtype=torch.float64))[0]
    after = x - (x - x.mean(dim=0)) @ basis @ basis.T
    coordinate = (x - x.mean(dim=0)) @ basis
    share = returned_share(after, coordinate, basis)
    bulk = np.cov(after.numpy().T).trace() / (d - j)
    for number in range(j):
        variance = np.var(coordinate[:, number].numpy(), ddof=1)
        assert float(share[number]) == pytest.approx(min(1.0, math.sqrt(bulk / variance)))
    assert bool((share <= 1.0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_is_kept_where_nothing_else_varies_or_nothing_stands_out(dtype):
    basis = torch.eye(3, dtype=dtype)[:, :2]
    coordinate = torch.tensor([[2.0, 0.0], [-2.0, 0.0]], dtype=dtype)
    still = torch.full((2, 3), 7.0, dtype=dtype)
    assert returned_share(still, coordinate, basis).tolist() == [1.0, 1.0]
    wide = torch.tensor([[0.0, 0.0, 9.0], [0.0, 0.0, -9.0]], dtype=dtype)
    assert returned_share(wide, coordinate, basis).tolist() == [1.0, 1.0]
    low = wide / 9.0
    # The second varies not at all.
    assert returned_share(low, coordinate, basis).tolist() == [0.5, 1.0]


# --- nothing that is protected is deleted --------------------------------------------------------


@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 3), st.integers(0, 99))
@settings(light, max_examples=24)
def test_what_is_protected_comes_back_whatever_is_removed(k, r, n_leading, seed):
    """Along each protected direction a row is `kept` times as far from the mean as it was."""
    x, labels = classes(3, n=60, d=9, seed=seed)
    options = {"n_leading": n_leading, "protect_labels": True, "stats": "batch", "seed": seed}
    layer = ProtectedClusterPCA(9, k, r, **options).double()
    stats = layer.estimate(x, labels_N=labels)
    y = layer.transform(x, stats, are_last=False)
    along = (y - y.mean(dim=0)) @ stats.spared_DJ
    before = (x - x.mean(dim=0)) @ stats.spared_DJ
    torch.testing.assert_close(along, before * stats.kept_J, atol=1e-8, rtol=0)
    kept_J = stats.kept_J[stats.spared_DJ.any(dim=0)]
    assert len(kept_J) >= 2
    assert bool((kept_J > 0.01).all())
    inside = stats.direction_KDR.mT @ stats.spared_DJ
    assert float(inside.abs().max() if inside.numel() else 0.0) < 1e-8
