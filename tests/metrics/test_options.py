"""Options that a metric rejects: the error names the option, its bounds and what was given."""

import math

import pytest
import torch

from isotrain.metrics.alpha_req import alpha_req
from isotrain.metrics.effective_rank import effective_rank
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.self_similarity import self_similarity
from isotrain.metrics.suite import find
from isotrain.metrics.two_nn import two_nn
from isotrain.objectives.angle import angle_similarity
from isotrain.transforms.group_whitening import GroupWhitening
from isotrain.transforms.iter_norm import IterNorm
from tests.clouds import uneven
from tests.metrics.test_invariances import extras

EYE = torch.eye(3, dtype=torch.float64)
TABLE = [
    ("best_dimension_accuracy", {"n_folds": 7}, "smallest class, 6 here, got 7; lower n_folds"),
    ("best_dimension_accuracy", {"n_folds": 0}, "n_folds must be"),
    *(("condition", {"quantile": q}, "quantile must be a") for q in (0.0, 1.01, math.nan)),
    *(("explained_variance", {"n_directions": [1, k]}, "at least 1") for k in (0, -1)),
    ("intra_sentence_similarity", {"min_count": 0}, "min_count must be at least 1, got 0"),
    ("intra_sentence_similarity", {"min_count": 6}, "no group has 6 rows: the largest is group 0"),
    *(("isoscore_star", {"shrinkage": z}, "shrinkage must be ") for z in (-0.1, 1.1, math.nan)),
    ("lid", {}, r"\[1, 19\], got 100; lower it or give more rows"),
    ("lid", {"n_neighbors": 20}, "got 20"),
    ("lid", {"n_neighbors": 1}, "at least 2, got 1"),
    ("lid", {"n_neighbors": 5, "distance": "l2"}, "euclidean or cosine, got 'l2'"),
    ("lid", {"n_neighbors": 5, "aggregate": "median"}, "mean or harmonic, got 'median'"),
    ("lid", {"n_neighbors": 5, "max_queries": 0}, "max_queries must be at least 1"),
    ("linear_probe_accuracy", {"n_folds": 7}, "smallest class, 6 here, got 7; lower n_folds"),
    ("linear_probe_accuracy", {"n_folds": 1}, "n_folds must be from 2"),
    *(("linear_probe_accuracy", {"l2": l2}, "l2 must be") for l2 in (0.0, math.inf)),
    ("max_explainable_variance", {"n_per_group": 6}, "no group has 6 rows.*or lower n_per_group"),
    ("max_explainable_variance", {"n_per_group": 1}, "at least 2 for center=False, got 1"),
    ("max_explainable_variance", {"n_per_group": 2, "center": True}, "at least 3 for center=True"),
    ("max_explainable_variance", {"n_baseline": 0}, "n_baseline must be at least 1, got 0"),
    *(("outlier_dims", {"n_top": k}, "n_top must be at least 1") for k in (0, -1)),
    ("partition", {"signs": "as_is"}, "pass directions.*signs='both'"),
    ("partition", {"signs": "one"}, "both or as_is"),
    *(("partition", {"directions": s * EYE}, "divide each by") for s in (2.0, math.nan)),
    *(("rankme", {"epsilon": e}, "epsilon must be ") for e in (0.0, -1e-7, math.nan)),
    ("self_similarity", {"min_count": 6}, r"no group has 6 rows: the largest is group \d"),
    *(("two_nn", {"discard": share}, "discard must be") for share in (-0.1, 1.0)),
    *(("uniformity", {"t": t}, "t must be") for t in (0.0, math.inf, math.nan)),
]


@pytest.mark.parametrize(("name", "options", "words"), TABLE)
def test_an_option_out_of_range_is_rejected(name, options, words):
    x = uneven(20, 3)
    with pytest.raises(ValueError, match=words):
        find(name)(x, **extras(find(name), 20, x), **options)


def test_clouds_and_labels_that_do_not_fit():
    x = uneven(6, 3)
    with pytest.raises(ValueError, match="at least 4 rows, got 3"):
        find("linear_cka")(x[:3], x[:3], debiased=True)
    with pytest.raises(ValueError, match="N − 1"):
        find("label_silhouette")(x, torch.arange(6))
    with pytest.raises(ValueError, match=r"\[N\] = \[6\]"):
        find("label_silhouette")(x, torch.arange(5), max_rows=4)
    with pytest.raises(ValueError, match="at least 2 groups, got 1"):
        find("intra_sentence_similarity")(x, torch.zeros(6, dtype=torch.int64))
    for other in (uneven(5, 3), uneven(6, 2)):
        for name, words in (("alignment", "repeat rows"), ("cosine_drift", "use linear_cka")):
            with pytest.raises(ValueError, match=words):
                find(name)(x, other)


def test_values_that_an_option_cannot_have():
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="min_count"):
        self_similarity(x, torch.arange(60) // 2, min_count=1)
    with pytest.raises(ValueError, match="last must be above first, got first=6, last=6"):
        alpha_req(x, first=6, last=6)
    with pytest.raises(ValueError, match="the width must be even"):
        angle_similarity(x[:, :3], x[:, 3:6])
    for layer in (GroupWhitening, IterNorm):
        with pytest.raises(ValueError, match="group_size must divide the width, got 64 of 312"):
            layer(312, group_size=64)
        assert layer(312, group_size=39).group_size == 39


def test_a_collapsed_cloud_has_no_scatter_in_float32():
    """Equal embeddings up to their last bit, as another batch rounds them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, generator=generator).expand(200, 64).clone()
    x += x.abs() * 1e-7 * torch.randn(200, 64, generator=generator)
    assert len(x.unique(dim=0)) > 100
    assert isoscore(x) == 0.0
    assert effective_rank(x) == 0.0


def test_texts_of_two_batches_are_duplicates_for_two_nn():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(250, 16, generator=generator)
    again = x[:60] * (1 + 2e-7 * torch.randn(60, 16, generator=generator))
    found, exact = (two_nn(torch.cat([x, more])).item() for more in (again, x[:60]))
    assert found == pytest.approx(exact, rel=1e-3)
