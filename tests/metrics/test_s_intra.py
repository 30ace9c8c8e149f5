"""S_intra against the loop over types and pairs, and inside clusters against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity

from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.s_intra import s_intra
from isotrain.metrics.self_similarity import self_similarity
from tests.metrics.clouds import floats

ADJUST = ["none", "centre", "cluster"]


def types(n, d, n_types, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    type_GD = torch.randn(n_types, d, generator=generator, dtype=torch.float64) + mean
    groups = (torch.rand(n, generator=generator) ** 2 * n_types).long()
    groups[:2] = 0
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return type_GD[groups] + noise_ND, groups


def islands(n, d, n_types, seed=0):
    generator = torch.Generator().manual_seed(seed)
    island_KD = 20.0 * torch.randn(3, d, generator=generator, dtype=torch.float64)
    label_N = torch.randint(3, (n,), generator=generator)
    x, groups = types(n, d, n_types, seed)
    return x + island_KD[label_N], groups


def all_pairs(rows):
    cosines = cosine_similarity(rows.numpy())
    return (cosines.sum() - np.trace(cosines)) / (len(rows) * (len(rows) - 1))


def loop(x, groups):
    """Types with two rows or more, each a mean over its pairs."""
    sets = [x[groups == g] for g in sorted(set(groups.tolist()))]
    return [all_pairs(rows) for rows in sets if len(rows) > 1]


def summary(parts):
    """Unweighted means over clusters of (rows, groups)."""
    within = [loop(rows, groups) for rows, groups in parts]
    kept = [i for i, values in enumerate(within) if values]
    value = np.mean([np.mean(within[i]) for i in kept])
    baseline = np.mean([all_pairs(parts[i][0]) for i in kept])
    return {
        "value": value,
        "baseline": baseline,
        "adjusted": value - baseline,
        "n_groups": float(sum(len(within[i]) for i in kept)),
        "n_clusters": float(len(parts)),
    }


@pytest.mark.parametrize("d", [3, 80])
def test_equals_the_loops(d):
    x, groups = types(60, d, 30)
    assert (groups.bincount() == 1).sum() > 0
    assert floats(s_intra(x, groups)) == pytest.approx(summary([(x, groups)]), abs=1e-13)
    centred = x - x.mean(dim=0)
    assert floats(s_intra(x, groups, adjust="centre")) == pytest.approx(
        summary([(centred, groups)]), abs=1e-12
    )


def test_equals_the_loops_inside_scikit_learns_clusters():
    x, groups = islands(120, 8, 20)
    labels = KMeans(3, n_init=10, random_state=0).fit_predict(x.numpy())
    parts = []
    for k in range(3):
        rows = x[labels == k]
        parts.append((rows - rows.mean(dim=0), groups[labels == k]))
    found = floats(s_intra(x, groups, adjust="cluster"))
    assert found == pytest.approx(summary(parts), abs=1e-12)
    assert found["n_groups"] > 20  # types that are in several clusters


def test_unadjusted_it_is_the_self_similarity_from_two_rows():
    x, groups = types(60, 5, 20)
    both = s_intra(x, groups), self_similarity(x, groups, min_count=2)
    for name in ("value", "baseline", "adjusted", "n_groups"):
        assert both[0][name].item() == pytest.approx(both[1][name].item(), abs=1e-14)
    assert both[0]["baseline"].item() == pytest.approx(mean_cosine(x).item(), abs=1e-14)


def test_more_than_1000_instances_all_count():
    x, _ = types(1500, 3, 1)
    x[1000:] *= -1.0
    groups = torch.zeros(1500, dtype=torch.int64)
    assert s_intra(x, groups)["value"].item() == pytest.approx(all_pairs(x), abs=1e-12)


def test_placed_points():
    groups = torch.arange(3).repeat(4)
    eye = torch.eye(12, dtype=torch.float64)
    assert s_intra(eye[groups], groups)["value"].item() == 1.0
    assert s_intra(eye, groups)["value"].item() == 0.0
    opposite = torch.tensor([[1.0, 0.0], [-3.0, 0.0]])
    lone = s_intra(opposite, torch.tensor([4, 4]))
    assert lone["value"].item() == lone["baseline"].item() == -1.0
    for adjust, expected in (("none", 1.0), ("centre", 0.0), ("cluster", 0.0)):
        equal = floats(s_intra(torch.full((12, 5), 0.1), groups, adjust=adjust))
        assert equal["value"] == pytest.approx(expected, abs=1e-14)


def test_centring_takes_the_cone_away_and_leaves_the_types():
    x, groups = types(400, 32, 40, mean=20.0)
    raw, centred = (floats(s_intra(x, groups, adjust=a)) for a in ("none", "centre"))
    assert raw["value"] > 0.99
    assert raw["adjusted"] < 0.01
    assert centred["baseline"] == pytest.approx(0.0, abs=0.05)
    assert centred["value"] == pytest.approx(0.5, abs=0.1)  # half of the variance is the type


def test_a_cluster_without_two_instances_of_a_type_is_left_out():
    generator = torch.Generator().manual_seed(0)
    island = 100.0 * torch.eye(3, dtype=torch.float64).repeat_interleave(4, dim=0)
    x = island + torch.randn(12, 3, generator=generator, dtype=torch.float64)
    groups = torch.tensor([0, 0, 1, 1, 0, 1, 2, 3, 5, 5, 5, 6])
    parts = [(y - y.mean(dim=0), g) for y, g in zip(x.split(4), groups.split(4), strict=True)]
    assert [len(loop(*part)) for part in parts] == [2, 0, 1]
    assert floats(s_intra(x, groups, adjust="cluster")) == pytest.approx(summary(parts), abs=1e-12)
    alone = torch.arange(4).repeat(3)  # a row of each type in each cluster
    with pytest.raises(ValueError, match="none of 3 clusters has them"):
        s_intra(x, alone, adjust="cluster")


def test_the_options_of_the_clusters_reach_them():
    x, groups = islands(90, 8, 12)
    assert s_intra(x, groups, adjust="cluster")["n_clusters"] == 3
    assert s_intra(x, groups, adjust="cluster", k_max=2)["n_clusters"] == 2
    assert s_intra(x, groups, adjust="cluster", max_rows=30)["n_clusters"] == 3
    assert s_intra(x, groups, adjust="cluster", seed=3)["n_clusters"] == 3
    one = floats(s_intra(x, groups, adjust="cluster", threshold=1.0))
    assert one == pytest.approx(floats(s_intra(x, groups, adjust="centre")), abs=1e-12)
    with pytest.raises(ValueError, match="k_max must be at least 1"):
        s_intra(x, groups, adjust="cluster", k_max=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_far_clusters_are_unchanged_by_motion_scale_names_and_order(seed):
    x, groups = islands(60, 6, 10, seed)
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))
    order = torch.randperm(60, generator=generator)
    found = floats(s_intra(x, groups, adjust="cluster"))
    assert found["n_clusters"] == 3.0
    for moved, names in (
        (x @ rotation, groups),
        (x * 0.01 + 7.0, groups),
        (x, -groups),
        (x[order], groups[order]),  # well parted: every start finds the same clusters
    ):
        assert floats(s_intra(moved, names, adjust="cluster")) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("adjust", ADJUST)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales(adjust, scale):
    x, groups = islands(60, 6, 10)
    assert floats(s_intra(x * scale, groups, adjust=adjust)) == pytest.approx(
        floats(s_intra(x, groups, adjust=adjust)), abs=1e-10
    )


@pytest.mark.parametrize("adjust", ["centre", "cluster"])
def test_a_mean_of_norm_16000_keeps_the_digits(adjust):
    x, groups = islands(60, 16, 10)
    assert floats(s_intra(x + 4000.0, groups, adjust=adjust)) == pytest.approx(
        floats(s_intra(x, groups, adjust=adjust)), abs=1e-9
    )


@pytest.mark.parametrize("adjust", ADJUST)
def test_gradient_when_asked(adjust):
    x, groups = islands(14, 3, 3)
    adjusted = lambda x: s_intra(x, groups, adjust=adjust, k_max=3)["adjusted"]  # noqa: E731
    assert torch.autograd.gradcheck(adjusted, x.requires_grad_())


def test_errors():
    x, groups = islands(30, 3, 6)
    with pytest.raises(ValueError, match="none, centre or cluster, got 'mean'"):
        s_intra(x, groups, adjust="mean")
    with pytest.raises(
        ValueError, match="no group has 2 rows: the largest is group 0 with 1; give"
    ):
        s_intra(x, torch.arange(30))
    with pytest.raises(ValueError, match=r"integers, got torch.float32"):
        s_intra(x, groups.float())
    with pytest.raises(ValueError, match=r"shape \(30,\), got \(29,\)"):
        s_intra(x, groups[1:])
