"""S_inter and S_intra against loops over types and pairs, inside scikit-learn's clusters too."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.s_inter import s_inter
from isotrain.metrics.s_intra import s_intra
from isotrain.metrics.self_similarity import self_similarity
from tests.clouds import floats, islands, seeded
from tests.slow_cosines import mean_of_pairs, means_within

over_both = pytest.mark.parametrize("metric", [s_inter, s_intra])


def types(n, d, n_types, **options):
    return islands(n, d, n_types, n_islands=0, **options)[:2]


def between(x, groups):
    """One instance of each type, where there is one alone: a mean over pairs of types."""
    assert len(groups.unique()) == len(groups)
    return [mean_of_pairs(x)]


def over_parts(parts, values_of):
    """Unweighted means over clusters of (rows, groups)."""
    values = [values_of(*part) for part in parts]
    kept = [i for i, found in enumerate(values) if found]
    value = np.mean([np.mean(values[i]) for i in kept])
    baseline = np.mean([mean_of_pairs(parts[i][0]) for i in kept])
    n_groups = [len(values[i]) if values_of is means_within else len(parts[i][0]) for i in kept]
    return {
        "value": value,
        "baseline": baseline,
        "adjusted": value - baseline,
        "n_groups": float(sum(n_groups)),
        "n_clusters": float(len(parts)),
    }


def centred(x, groups):
    return x - x.mean(dim=0), groups


@over_both
@pytest.mark.parametrize("d", [3, 80])
def test_equals_the_loops(metric, d):
    x, groups = types(60, d, 30)
    assert (groups.bincount() == 1).sum() > 0
    loop = means_within
    if metric is s_inter:  # one embedding a type: nothing is drawn
        groups, loop = torch.arange(60), between
    plain, moved = over_parts([(x, groups)], loop), over_parts([centred(x, groups)], loop)
    assert floats(metric(x, groups)) == pytest.approx(plain, abs=1e-13)
    assert floats(metric(x, groups, adjust="centre")) == pytest.approx(moved, abs=1e-12)


@over_both
def test_equals_the_loops_inside_scikit_learns_clusters(metric):
    x, groups, _ = islands(120, 8, 20)
    groups = groups if metric is s_intra else torch.arange(120)
    labels = KMeans(3, n_init=10, random_state=0).fit_predict(x.numpy())
    parts = [centred(x[labels == k], groups[labels == k]) for k in range(3)]
    expected = over_parts(parts, means_within if metric is s_intra else between)
    assert floats(metric(x, groups, adjust="cluster")) == pytest.approx(expected, abs=1e-12)


def test_unadjusted_s_intra_is_the_self_similarity_from_two_instances():
    x, groups = types(60, 5, 20)
    both = s_intra(x, groups), self_similarity(x, groups, min_count=2)
    for name in ("value", "baseline", "adjusted", "n_groups"):
        assert both[0][name].item() == pytest.approx(both[1][name].item(), abs=1e-14)
    assert both[0]["baseline"].item() == pytest.approx(mean_cosine(x).item(), abs=1e-14)


def test_draws_have_the_mean_and_spread_of_random_ones():
    """One instance of each type, drawn anew many times, as the released code does."""
    x, groups = types(100, 4, 5, seed=2)
    draw = np.random.default_rng(0)
    many = []
    for _ in range(400):
        chosen = [draw.choice(np.flatnonzero(groups.numpy() == g)) for g in range(5)]
        many.append(mean_of_pairs(x[chosen]))
    found = np.array([s_inter(x, groups, seed=seed)["value"].item() for seed in range(200)])
    assert len(set(found.tolist())) == 200
    assert found.mean() == pytest.approx(np.mean(many), abs=4 * np.std(many) / 200**0.5)
    assert found.std() == pytest.approx(np.std(many), rel=0.25)


def test_a_type_in_two_clusters_counts_in_both_and_clusters_without_pairs_are_left_out():
    island = 100.0 * torch.eye(3, dtype=torch.float64).repeat_interleave(4, dim=0)
    x = island + torch.randn(12, 3, generator=seeded(), dtype=torch.float64)
    groups = torch.tensor([0, 1, 0, 1, 0, 1, 2, 2, 3, 3, 3, 3])
    found = floats(s_inter(x, groups, adjust="cluster"))
    assert (found["n_clusters"], found["n_groups"]) == (3.0, 2 + 3)
    groups = torch.tensor([0, 0, 1, 1, 0, 1, 2, 3, 5, 5, 5, 6])
    parts = [centred(*part) for part in zip(x.split(4), groups.split(4), strict=True)]
    assert [len(means_within(*part)) for part in parts] == [2, 0, 1]
    expected = over_parts(parts, means_within)
    assert floats(s_intra(x, groups, adjust="cluster")) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="none of 3 clusters has two instances of a type"):
        s_intra(x, torch.arange(4).repeat(3), adjust="cluster")
    with pytest.raises(ValueError, match="none of 3 clusters has two types"):
        s_inter(x, torch.arange(3).repeat_interleave(4), adjust="cluster")


@over_both
def test_the_options_of_the_clusters_reach_them(metric):
    x, groups, _ = islands(90, 8, 12)

    def in_clusters(**options):
        return floats(metric(x, groups, adjust="cluster", **options))

    assert in_clusters()["n_clusters"] == in_clusters(max_rows=30)["n_clusters"] == 3
    assert in_clusters(k_max=2)["n_clusters"] == 2
    one = floats(metric(x, groups, adjust="centre"))
    assert in_clusters(threshold=1.0) == pytest.approx(one, abs=1e-12)


def test_placed_points():
    groups = torch.arange(3).repeat(4)
    eye = torch.eye(12, dtype=torch.float64)
    assert s_intra(eye[groups], groups)["value"].item() == 1.0
    assert s_intra(eye, groups)["value"].item() == s_inter(eye, groups)["value"].item() == 0.0
    simplex = (torch.eye(3, dtype=torch.float64) - 1 / 3)[groups]
    assert s_inter(simplex, groups)["value"].item() == pytest.approx(-0.5, abs=1e-14)
    lone = s_intra(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]), torch.tensor([4, 4]))
    assert lone["value"].item() == lone["baseline"].item() == -1.0
    for metric in (s_inter, s_intra):
        for adjust, expected in (("none", 1.0), ("centre", 0.0), ("cluster", 0.0)):
            equal = floats(metric(torch.full((12, 5), 0.1), groups, adjust=adjust))
            assert equal["value"] == pytest.approx(expected, abs=1e-14)


@over_both
def test_inside_far_clusters_it_is_unchanged_by_motion_scale_and_names(metric):
    x, groups, _ = islands(60, 6, 10)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=seeded(), dtype=torch.float64))
    found = floats(metric(x, groups, adjust="cluster"))
    assert found["n_clusters"] == 3.0
    moves = (x @ rotation, x * 0.01 + 7.0, x * 1e-200, x * 1e200, x + 4000.0)
    for moved, names in [(m, groups) for m in moves] + [(x, -groups)]:
        assert floats(metric(moved, names, adjust="cluster")) == pytest.approx(found, abs=1e-9)


@over_both
def test_gradient_inside_clusters(metric):
    x, groups, _ = islands(14, 3, 4)
    value = lambda x: metric(x, groups, adjust="cluster", k_max=3)["value"]  # noqa: E731
    assert torch.autograd.gradcheck(value, x.requires_grad_())


def test_errors():
    x, groups, _ = islands(30, 3, 6)
    with pytest.raises(ValueError, match="none, centre or cluster, got 'mean'"):
        s_inter(x, groups, adjust="mean")
    with pytest.raises(ValueError, match="none of 1 clusters has two types"):
        s_inter(x, torch.zeros(30, dtype=torch.int64))
    with pytest.raises(ValueError, match="none of 1 clusters has two instances"):
        s_intra(x, torch.arange(30))
