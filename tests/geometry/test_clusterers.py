"""What holds for k-means and a mixture: shapes, draws, equal embeddings."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.kmeans import kmeans, nearest_centroid
from isotrain.geometry.mixture import fit_mixture, likeliest
from tests import clouds
from tests.clouds import light, seeded

normal = partial(clouds.normal, mean=0.0)


def mixture(x, n_clusters, **options):
    found = fit_mixture(x, kmeans(x, n_clusters, **options), options.get("n_iterations", 10))
    return *found, likeliest(x, found)


over_all = pytest.mark.parametrize("cluster", [kmeans, mixture])


@over_all
def test_the_draws_are_those_of_the_generator_and_the_input_is_left_alone(cluster):
    x = normal(200, 3).requires_grad_()
    before, kept = torch.random.get_rng_state(), x.detach().clone()
    one, two = (cluster(x, 6, generator=seeded(1)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], cluster(x, 6, generator=seeded(2), n_iterations=1)[0])
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(kept, x.detach())
    assert not any(part.requires_grad for part in one)


@over_all
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 15), st.integers(0, 10_000))
@light
def test_any_shape_is_finite_and_keeps_the_dtype(cluster, dtype, n, d, k, seed):
    found = cluster(normal(n, d, seed=seed, dtype=dtype), k, generator=seeded(seed))
    assert found[0].shape == (k, d)
    assert {part.dtype for part in found if part.is_floating_point()} == {dtype}
    assert all(bool(part.isfinite().all()) for part in found)
    if cluster is kmeans and n < k and d > 1:
        assert int((found.count_K > 0).sum()) == n


def test_duplicates_share_a_cluster_and_equal_embeddings_make_one():
    x = torch.tensor([[1.0, 2.0], [-3.0, 4.0]]).repeat(10, 1)
    assert kmeans(x, 2, generator=seeded(0)).count_K.tolist() == [10, 10]
    same = kmeans(torch.full((12, 3), 0.1), 4, generator=seeded(0))
    assert int((same.count_K > 0).sum()) == 1


def test_one_cluster_is_the_mean_and_an_empty_one_keeps_its_centroid():
    x = normal(30, 2).abs()
    one = kmeans(x, 1)
    torch.testing.assert_close(one.centroid_KD[0], x.mean(dim=0))
    assert one.count_K.tolist() == [30]
    found = kmeans(x, 2, init=torch.tensor([[0.01, 0.01], [-0.6, -0.8]]).double() * 90.0)
    assert found.count_K.tolist() == [30, 0]
    torch.testing.assert_close(found.centroid_KD[1], torch.tensor([-54.0, -72.0]).double())
    torch.testing.assert_close(found.centroid_KD[0], x.mean(dim=0))


@pytest.mark.parametrize("width", [3, 64, 768])
@pytest.mark.parametrize("k", [2, 5, 17])
def test_the_lower_index_wins_a_tie_for_any_number_of_embeddings(width, k):
    centroid_KD = normal(k, width, seed=12, dtype=torch.float32)
    centroid_KD[1:] -= 20.0 * centroid_KD[0]  # they lie near the first, and its copy at the end
    centroid_KD[k - 1] = centroid_KD[0]
    x = centroid_KD[0] + 0.1 * normal(64, width, seed=13, dtype=torch.float32)
    for n in (1, 2, 3, 7, 64):
        assert nearest_centroid(x[:n], centroid_KD).tolist() == [0] * n


def test_a_start_is_drawn_from_a_generator_alone():
    with pytest.raises(ValueError, match="generator"):
        kmeans(torch.ones(3, 2), 2)
