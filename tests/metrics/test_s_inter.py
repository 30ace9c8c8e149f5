"""S_inter against the loop over types, and inside clusters against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity

from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.s_inter import s_inter
from tests.metrics.clouds import floats


def types(n, d, n_types, seed=0, mean=0.5, noise=1.0):
    generator = torch.Generator().manual_seed(seed)
    type_GD = torch.randn(n_types, d, generator=generator, dtype=torch.float64) + mean
    groups = torch.cat([torch.arange(n_types), torch.randint(n_types, (n,), generator=generator)])
    groups = groups[:n]
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return type_GD[groups] + noise * noise_ND, groups


def islands(n, d, n_types, seed=0):
    """Three far clusters; the rows of a type are spread over them."""
    generator = torch.Generator().manual_seed(seed)
    island_KD = 20.0 * torch.randn(3, d, generator=generator, dtype=torch.float64)
    label_N = torch.randint(3, (n,), generator=generator)
    x, groups = types(n, d, n_types, seed)
    return x + island_KD[label_N], groups, label_N


def all_pairs(rows):
    cosines = cosine_similarity(rows.numpy())
    return (cosines.sum() - np.trace(cosines)) / (len(rows) * (len(rows) - 1))


@pytest.mark.parametrize(("adjust", "mean"), [("none", 0.5), ("centre", 0.0)])
def test_types_of_one_row_are_a_mean_over_all_pairs(adjust, mean):
    x, _ = types(20, 6, 20)
    found = floats(s_inter(x, torch.arange(20), adjust=adjust))
    rows = x - x.mean(dim=0) if adjust == "centre" else x
    expected = all_pairs(rows)
    assert found == pytest.approx(
        {"value": expected, "baseline": expected, "adjusted": 0.0, "n_groups": 20, "n_clusters": 1},
        abs=1e-13,
    )


def test_static_types_give_the_loop_over_types_whatever_is_drawn():
    x, groups = types(60, 6, 8, noise=0.0)
    rows = torch.stack([x[groups == g][0] for g in range(8)])
    for seed in range(3):
        found = floats(s_inter(x, groups, seed=seed))
        assert found["value"] == pytest.approx(all_pairs(rows), abs=1e-13)
        assert found["baseline"] == pytest.approx(mean_cosine(x).item(), abs=1e-13)
        assert found["n_groups"] == 8.0


def test_draws_have_the_mean_and_spread_of_random_ones():
    """One instance of each type, drawn anew many times, as the released code does."""
    x, groups = types(100, 4, 5, seed=2)
    draw = np.random.default_rng(0)
    many = []
    for _ in range(400):
        places = [draw.choice(np.flatnonzero(groups.numpy() == g)) for g in range(5)]
        many.append(all_pairs(x[places]))
    found = np.array([s_inter(x, groups, seed=seed)["value"].item() for seed in range(200)])
    assert len(set(found.tolist())) == 200
    assert found.mean() == pytest.approx(np.mean(many), abs=4 * np.std(many) / 200**0.5)
    assert found.std() == pytest.approx(np.std(many), rel=0.25)
    # The mean over draws is exactly the mean cosine between types that weigh equally.
    unit = x / x.norm(dim=1, keepdim=True)
    mean_GD = torch.stack([unit[groups == g].mean(dim=0) for g in range(5)])
    exact = float((mean_GD.sum(dim=0).square().sum() - mean_GD.square().sum()) / 20)
    assert found.mean() == pytest.approx(exact, abs=4 * found.std() / 200**0.5)


def test_inside_clusters_it_is_the_mean_over_scikit_learns_clusters():
    x, groups, _ = islands(90, 8, 90)
    groups = torch.arange(90)  # one row a type: nothing is drawn
    labels = KMeans(3, n_init=10, random_state=0).fit_predict(x.numpy())
    expected = []
    for k in range(3):
        rows = x[labels == k]
        expected.append(all_pairs(rows - rows.mean(dim=0)))
    found = floats(s_inter(x, groups, adjust="cluster"))
    assert found["n_clusters"] == 3.0
    assert found["value"] == pytest.approx(np.mean(expected), abs=1e-12)


def test_a_type_in_two_clusters_counts_in_both_and_a_cluster_of_one_type_does_not():
    island = torch.tensor([[100.0, 0.0, 0.0], [0.0, 100.0, 0.0], [0.0, 0.0, 100.0]])
    x = island.double().repeat_interleave(4, dim=0)
    x = x + torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups = torch.tensor([0, 1, 0, 1, 0, 1, 2, 2, 3, 3, 3, 3])
    found = floats(s_inter(x, groups, adjust="cluster"))
    assert found["n_clusters"] == 3.0
    assert found["n_groups"] == 2 + 3
    assert -1.0 <= found["value"] <= 1.0


@pytest.mark.parametrize("n", [4, 20])
def test_centring_takes_the_cone_away(n):
    x, groups = types(20 * n, 32, 10 * n, mean=20.0)
    raw, centred = (floats(s_inter(x, groups, adjust=a)) for a in ("none", "centre"))
    assert raw["value"] > 0.99
    assert abs(centred["value"]) < 0.05
    assert centred["baseline"] == pytest.approx(-1 / (20 * n), abs=0.02)


def test_below_the_threshold_the_clusters_are_one():
    x, groups = types(100, 16, 20)
    one = floats(s_inter(x, groups, adjust="cluster", threshold=1.0))
    assert one == pytest.approx(floats(s_inter(x, groups, adjust="centre")), abs=1e-12)
    assert floats(s_inter(x, groups, adjust="cluster", k_max=1)) == pytest.approx(one, abs=1e-12)
    split = floats(s_inter(x, groups, adjust="cluster", threshold=-1.0))
    assert split["n_clusters"] > 1


def test_the_options_of_the_clusters_reach_them():
    x, groups, _ = islands(90, 8, 12)
    assert s_inter(x, groups, adjust="cluster")["n_clusters"] == 3
    assert s_inter(x, groups, adjust="cluster", k_max=2)["n_clusters"] == 2
    assert s_inter(x, groups, adjust="cluster", max_rows=30)["n_clusters"] == 3
    with pytest.raises(ValueError, match="max_rows at least 3"):
        s_inter(x, groups, adjust="cluster", max_rows=1)


def test_placed_points():
    groups = torch.arange(3).repeat(4)
    eye = torch.eye(3, dtype=torch.float64)
    assert s_inter(eye[groups], groups)["value"].item() == 0.0
    simplex = (eye - 1 / 3)[groups]
    assert s_inter(simplex, groups)["value"].item() == pytest.approx(-0.5, abs=1e-14)
    for adjust, expected in (("none", 1.0), ("centre", 0.0), ("cluster", 0.0)):
        equal = floats(s_inter(torch.full((12, 5), 0.1), groups, adjust=adjust))
        assert equal["value"] == pytest.approx(expected, abs=1e-14)
        assert equal["n_clusters"] == 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_far_clusters_are_unchanged_by_motion_scale_and_names(seed):
    x, groups, _ = islands(60, 6, 10, seed)
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))
    found = floats(s_inter(x, groups, adjust="cluster"))
    for moved, names in ((x @ rotation, groups), (x * 0.01 + 7.0, groups), (x, -groups)):
        assert floats(s_inter(moved, names, adjust="cluster")) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("adjust", ["none", "centre", "cluster"])
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales(adjust, scale):
    x, groups, _ = islands(60, 6, 10)
    assert floats(s_inter(x * scale, groups, adjust=adjust)) == pytest.approx(
        floats(s_inter(x, groups, adjust=adjust)), abs=1e-10
    )


@pytest.mark.parametrize("adjust", ["centre", "cluster"])
def test_a_mean_of_norm_16000_keeps_the_digits(adjust):
    x, groups, _ = islands(60, 16, 10)
    assert floats(s_inter(x + 4000.0, groups, adjust=adjust)) == pytest.approx(
        floats(s_inter(x, groups, adjust=adjust)), abs=1e-9
    )


@pytest.mark.parametrize("adjust", ["none", "centre", "cluster"])
def test_gradient_when_asked(adjust):
    x, groups, _ = islands(14, 3, 5)
    value = lambda x: s_inter(x, groups, adjust=adjust, k_max=3)["value"]  # noqa: E731
    assert torch.autograd.gradcheck(value, x.requires_grad_())


def test_errors():
    x, groups, _ = islands(30, 3, 6)
    with pytest.raises(ValueError, match="none, centre or cluster, got 'mean'"):
        s_inter(x, groups, adjust="mean")
    with pytest.raises(ValueError, match=r"two types in one cluster, got 1 in 1"):
        s_inter(x, torch.zeros(30, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"integers, got torch.bool"):
        s_inter(x, groups > 2)
    with pytest.raises(ValueError, match=r"shape \(30,\), got \(29,\)"):
        s_inter(x, groups[1:])


def test_clusters_that_are_types_leave_nothing_to_compare():
    x, _, label_N = islands(60, 4, 10)
    with pytest.raises(ValueError, match=r"got 3 in 3 cluster\(s\) and no two together"):
        s_inter(x, label_N, adjust="cluster")
