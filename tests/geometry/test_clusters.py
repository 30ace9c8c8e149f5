"""Clusters chosen by silhouette against scikit-learn and placed points."""

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from isotrain.geometry.clusters import (
    adjusted_parts,
    centre_rows,
    choose_clusters,
    over_clusters,
)


def blobs(n, d, k, seed=0, apart=4.0):
    generator = torch.Generator().manual_seed(seed)
    centre_KD = torch.randn(k, d, generator=generator, dtype=torch.float64) * apart
    label_N = torch.randint(k, (n,), generator=generator)
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return centre_KD[label_N] + noise_ND, label_N


@pytest.mark.parametrize("k", [2, 3, 7, 12])
def test_parted_clusters_are_found(k):
    x, label_N = blobs(300, 16, k, seed=k)
    found = choose_clusters(x)
    assert found.n_clusters == k
    assert adjusted_rand_score(label_N, found.assignment_N) == 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_choice_is_that_of_scikit_learn(seed):
    x, _ = blobs(150, 5, 4, seed, apart=1.5)
    scores = {}
    for k in range(2, 9):
        labels = KMeans(k, n_init=10, random_state=0).fit_predict(x.numpy())
        scores[k] = silhouette_score(x.numpy(), labels)
    found = choose_clusters(x, k_max=8)
    reached = silhouette_score(x.numpy(), found.assignment_N.numpy())
    assert reached > max(scores.values()) - 0.01
    assert found.n_clusters == max(scores, key=scores.get)


def test_one_cluster_below_the_threshold():
    x = torch.randn(200, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert choose_clusters(x).n_clusters == 1  # silhouettes of noise are about 0.03
    assert choose_clusters(x, threshold=0.0).n_clusters > 1
    parted, _ = blobs(200, 8, 3)
    best = silhouette_score(parted.numpy(), choose_clusters(parted).assignment_N.numpy())
    assert choose_clusters(parted, threshold=best - 1e-6).n_clusters == 3
    assert choose_clusters(parted, threshold=best + 1e-6).n_clusters == 1


def test_k_max_bounds_the_choice():
    x, _ = blobs(120, 16, 6)
    assert choose_clusters(x, k_max=6).n_clusters == 6
    assert choose_clusters(x, k_max=4).n_clusters <= 4
    assert choose_clusters(x, k_max=1).n_clusters == 1


def test_a_sample_of_rows_chooses_for_all():
    x, label_N = blobs(900, 8, 5)
    found = choose_clusters(x, max_rows=100)
    assert adjusted_rand_score(label_N, found.assignment_N) == 1.0


def test_only_the_sample_gets_silhouettes(monkeypatch):
    sizes = []

    def silhouettes(x_ND, labels_N):
        sizes.append((len(x_ND), len(labels_N)))
        return torch.zeros(len(x_ND))

    monkeypatch.setattr("isotrain.geometry.clusters.silhouette_values", silhouettes)
    x, _ = blobs(90, 4, 3)
    assert choose_clusters(x, k_max=4, max_rows=50).n_clusters == 1
    assert sizes == [(50, 50)] * 3
    choose_clusters(x, k_max=2)
    assert sizes[-1] == (90, 90)


def test_the_global_random_state_and_the_input_are_left_alone():
    x, _ = blobs(60, 4, 3, apart=1.0)
    kept = x.clone()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = choose_clusters(x, threshold=-1.0).assignment_N
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(choose_clusters(x, threshold=-1.0).assignment_N, first)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_equal_rows_and_few_rows_are_one_cluster(n):
    equal = choose_clusters(torch.full((n, 3), 0.1, dtype=torch.float64))
    assert equal.n_clusters == 1
    assert equal.assignment_N.tolist() == [0] * n
    assert choose_clusters(torch.eye(3, dtype=torch.float64)[: min(n, 2)]).n_clusters == 1


def test_repeated_rows_make_no_empty_cluster():
    x = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 7.0]], dtype=torch.float64).repeat(10, 1)
    found = choose_clusters(x)
    assert found.n_clusters == 3
    assert found.assignment_N.bincount().tolist() == [10, 10, 10]


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e200])
def test_scale_and_a_far_mean_change_nothing(scale):
    x, label_N = blobs(100, 4, 3)
    for moved in (x * scale, x + 8000.0):
        assert adjusted_rand_score(label_N, choose_clusters(moved).assignment_N) == 1.0


def test_options_out_of_range():
    for options in ({"k_max": 0}, {"max_rows": 2}):
        with pytest.raises(ValueError, match="k_max must be at least 1 and max_rows at least 3"):
            choose_clusters(torch.eye(4), **options)


def test_centred_rows():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(centre_rows(x + 16_000.0), x - x.mean(dim=0), atol=1e-11, rtol=0)
    assert not bool(centre_rows(torch.full((7, 2), -1234.567)).any())
    # (±a, and their mean): rounding must not give the mean a direction.
    line = torch.tensor([[0.1, 0.2], [0.3, 0.9], [0.2, 0.55]], dtype=torch.float64)
    assert centre_rows(line)[2].tolist() == [0.0, 0.0]


def test_parts_of_each_adjustment():
    x, label_N = blobs(90, 6, 3)
    options = {"k_max": 15, "threshold": 0.1, "max_rows": 2000, "seed": 0}
    (whole,) = adjusted_parts(x, "none", **options)
    assert torch.equal(whole.x_nD, x)
    (whole,) = adjusted_parts(x, "centre", **options)
    torch.testing.assert_close(whole.x_nD, x - x.mean(dim=0))
    parts = adjusted_parts(x, "cluster", **options)
    assert len(parts) == 3
    assert torch.cat([part.position_n for part in parts]).sort().values.tolist() == list(range(90))
    for position_n, x_nD in parts:
        assert len(set(label_N[position_n].tolist())) == 1
        torch.testing.assert_close(x_nD, x[position_n] - x[position_n].mean(dim=0))
    with pytest.raises(ValueError, match="none, centre or cluster, got 'center'"):
        adjusted_parts(x, "center", **options)


def test_clusters_weigh_equally():
    values = [torch.tensor(v, dtype=torch.float64) for v in (0.2, 0.8)]
    found = over_clusters(values, [values[0], values[0]], n_groups=11, n_clusters=3)
    assert {k: v.item() for k, v in found.items()} == pytest.approx(
        {"value": 0.5, "baseline": 0.2, "adjusted": 0.3, "n_groups": 11.0, "n_clusters": 3.0}
    )
