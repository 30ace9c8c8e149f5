"""Removed share of between-class scatter against the matrices."""

import pytest
import torch
from sklearn.decomposition import PCA

from isotrain.metrics.removed_label_scatter import removed_label_scatter
from isotrain.metrics.scatter_ratio import scatter_ratio


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.rand(d, generator=generator, dtype=torch.float64) * 3.0 + 0.05
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def between_of(x, labels):
    found = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for c in labels.unique():
        offset = x[labels == c].mean(dim=0) - x.mean(dim=0)
        found += (labels == c).sum() * torch.outer(offset, offset)
    return found


def both(x, labels, **options):
    found = removed_label_scatter(x, labels, **options)
    return found["value"].item(), found["explained"].item()


@pytest.mark.parametrize(("n", "d", "k"), [(30, 4, 1), (60, 10, 3), (20, 50, 5), (200, 12, 12)])
def test_is_the_ratio_of_traces(n, d, k):
    x, labels = cloud(n, d, seed=n, mean=3.0), torch.arange(n) % 3
    pca = PCA(k, svd_solver="full").fit(x.numpy())
    v = torch.from_numpy(pca.components_.T)
    between = between_of(x, labels)
    expected = ((v.T @ between @ v).trace() / between.trace()).item()
    found = both(x, labels, n_directions=k)
    assert found == pytest.approx((expected, pca.explained_variance_ratio_.sum()), abs=1e-9)


def test_given_directions_are_used():
    x, labels = cloud(40, 6, seed=1), torch.arange(40) % 2
    v = torch.linalg.qr(torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double())[0]
    between = between_of(x, labels)
    centred = x - x.mean(dim=0)
    expected = (
        ((v.T @ between @ v).trace() / between.trace()).item(),
        ((centred @ v).square().sum() / centred.square().sum()).item(),
    )
    assert both(x, labels, directions=v) == pytest.approx(expected, abs=1e-12)
    padded = torch.nn.functional.pad(v, (0, 2))  # zero columns remove nothing
    assert both(x, labels, directions=padded) == pytest.approx(expected, abs=1e-12)
    assert both(x, labels, directions=v.float()) == pytest.approx(expected, abs=1e-6)
    assert both(x, labels, directions=torch.eye(6)) == pytest.approx((1.0, 1.0), abs=1e-12)


def test_is_what_removal_takes_from_the_scatter():
    x, labels = cloud(50, 8, seed=2), torch.arange(50) % 4
    v = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)[2][:3].T
    after = x - (x - x.mean(dim=0)) @ v @ v.T
    left = between_of(after, labels).trace() / between_of(x, labels).trace()
    assert both(x, labels)[0] == pytest.approx(1.0 - left.item(), abs=1e-9)


def test_a_class_axis_that_leads_goes_and_one_that_does_not_stays():
    labels = torch.arange(400) % 2
    noise = cloud(400, 10, seed=3) * 0.01
    lobes = noise.clone()
    lobes[:, 4] += 5.0 * (labels * 2 - 1)
    assert both(lobes, labels, n_directions=1)[0] > 0.999
    hidden = noise.clone()
    hidden[:, 7] += 0.5 * (labels * 2 - 1)
    hidden[:, 0] += 20.0 * cloud(400, 1, seed=4)[:, 0]
    value, explained = both(hidden - scaled_means(hidden, labels, 0), labels, n_directions=1)
    assert value < 0.01
    assert explained > 0.99


def scaled_means(x, labels, column):
    """Class means of one column, so that it tells nothing of the class."""
    found = torch.zeros_like(x)
    for c in labels.unique():
        found[labels == c, column] = x[labels == c, column].mean()
    return found


def test_random_labels_give_about_the_explained_share():
    x = cloud(2_000, 20, seed=5)
    values = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 8, (2_000,), generator=generator)
        value, explained = both(x, labels, n_directions=6)
        values.append(value)
    assert sum(values) / 60 == pytest.approx(explained, abs=0.04)


def test_random_directions_give_k_over_d():
    x, labels = cloud(100, 16, seed=6), torch.arange(100) % 2
    values = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        v = torch.linalg.qr(torch.randn(16, 4, generator=generator, dtype=torch.float64))[0]
        values.append(both(x, labels, directions=v)[0])
    assert sum(values) / 200 == pytest.approx(4 / 16, abs=0.03)


def test_equal_means_equal_rows_and_a_far_mean():
    x = cloud(9, 4, seed=7, mean=3.0)
    twice = torch.cat([x, x])
    value, explained = both(twice, torch.arange(2).repeat_interleave(9))
    assert value == 0.0
    assert explained > 0.5
    assert scatter_ratio(twice, torch.arange(2).repeat_interleave(9))["share"].item() == 0.0
    assert both(torch.full((99, 3), 0.1), torch.arange(99) % 2) == (0.0, 0.0)
    labels = torch.arange(9) % 2
    assert both(x + 8_000.0, labels) == pytest.approx(both(x, labels), abs=1e-8)


def test_errors():
    x, labels = cloud(8, 3), torch.arange(8) % 2
    with pytest.raises(ValueError, match="n_directions must be at least 1, got 0"):
        removed_label_scatter(x, labels, n_directions=0)
    with pytest.raises(ValueError, match=r"\[D, J\] = \[3, J\], got \(4, 1\)"):
        removed_label_scatter(x, labels, directions=torch.eye(4)[:, :1])
    with pytest.raises(ValueError, match="qr"):
        removed_label_scatter(x, labels, directions=torch.ones(3, 2))
    with pytest.raises(ValueError, match="qr"):
        removed_label_scatter(x, labels, directions=torch.full((3, 1), float("nan")))
    with pytest.raises(ValueError, match="slice a score"):
        removed_label_scatter(x, labels + 0.5)
