"""Similarity of occurrences of a word, and of tokens of a sentence, against loops over pairs."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from isotrain.geometry.groups import hashed_order
from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity
from isotrain.metrics.self_similarity import self_similarity
from tests.clouds import floats, islands
from tests.slow_cosines import mean_of_pairs, means_within


@pytest.mark.parametrize("min_count", [2, 5, 9])
@pytest.mark.parametrize("d", [3, 100])
def test_equals_the_loops(min_count, d):
    x, groups, _ = islands(60, d, 8, n_islands=0)
    x[4] = 0.0
    values, baseline = means_within(x, groups, min_count), mean_of_pairs(x)
    assert 1 < len(values) <= 8
    assert floats(self_similarity(x, groups, min_count)) == pytest.approx(
        {
            "value": np.mean(values),
            "baseline": baseline,
            "adjusted": np.mean(values) - baseline,
            "n_groups": float(len(values)),
            "standard_error": np.std(values, ddof=1) / len(values) ** 0.5,
        },
        abs=1e-13,
    )


def test_placed_points():
    groups = torch.arange(4).repeat(5)
    static = torch.eye(4, dtype=torch.float64)[groups]
    found = floats(self_similarity(static, groups))
    # 20 rows, 4·5·4 of the 20·19 ordered pairs are equal, the others orthogonal.
    assert found == pytest.approx(
        {"value": 1.0, "baseline": 80 / 380, "adjusted": 300 / 380, "n_groups": 4.0}
        | {"standard_error": 0.0},
        abs=1e-14,
    )
    orthogonal = floats(self_similarity(torch.eye(20), groups))
    assert orthogonal["value"] == orthogonal["baseline"] == 0.0
    simplex = torch.eye(5, dtype=torch.float64).repeat(2, 1) - 0.2
    lowest = self_similarity(simplex, torch.tensor([0] * 5 + [1] * 5))
    assert lowest["value"].item() == pytest.approx(-0.25, abs=1e-14)
    equal = floats(self_similarity(torch.full((10, 3), 0.1), torch.zeros(10, dtype=torch.int64)))
    assert equal == pytest.approx({"value": 1, "baseline": 1, "adjusted": 0, "n_groups": 1})


def text(n, d, n_sentences, seed=0, mean=0.4):
    generator = torch.Generator().manual_seed(seed)
    about_GD = torch.randn(n_sentences, d, generator=generator, dtype=torch.float64)
    groups = torch.randint(n_sentences, (n,), generator=generator)
    groups[: 2 * n_sentences] = torch.arange(n_sentences).repeat(2)[:n]
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return about_GD[groups] + noise_ND + mean, groups


def unshuffled(found):
    """All but what depends on the order of rows."""
    return {name: value.item() for name, value in found.items() if "shuffled" not in name}


def loops(x, groups, min_count=2):
    values = []
    for sentence in sorted(set(groups.tolist())):
        rows = x[groups == sentence]
        n = len(rows)
        if n < min_count:
            continue
        mean = rows.mean(dim=0)
        values.append(np.mean([cosine_similarity(row, mean, dim=0).item() for row in rows]))
    different = mean_of_pairs(x, lambda i, j: groups[i] != groups[j])
    return {
        "value": np.mean(values),
        "baseline": different,
        "adjusted": np.mean(values) - different,
        "n_groups": float(len(values)),
        "standard_error": np.std(values, ddof=1) / len(values) ** 0.5,
    }


@pytest.mark.parametrize(("d", "min_count"), [(3, 2), (60, 2), (5, 7)])
def test_intra_equals_the_loops(d, min_count):
    x, groups = text(40, d, 6)
    x[2] = 0.0
    groups[-1] = 99  # a sentence of one row is left out, but is a context for the baseline
    expected = loops(x, groups, min_count)
    assert 1 < expected["n_groups"] < 7
    found = unshuffled(intra_sentence_similarity(x, groups, min_count))
    assert found == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_orthogonal_and_equal_rows(n):
    groups = torch.arange(2).repeat_interleave(n)
    x = torch.eye(2 * n, dtype=torch.float64)
    published = unshuffled(intra_sentence_similarity(x, groups))
    assert published["value"] == pytest.approx(1 / math.sqrt(n), abs=1e-14)  # the positive floor
    assert published["baseline"] == 0.0
    found = unshuffled(intra_sentence_similarity(torch.full((2 * n, 4), -0.1), groups))
    assert found["value"] == pytest.approx(1.0, abs=1e-14)
    assert found["adjusted"] == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("mean", [0.0, 0.3, 0.6])
def test_rows_dealt_out_anew_are_the_baseline_of_a_cone(mean):
    """No sentence shows: the published difference is √ρ − ρ and more, the shuffled one 0."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 256, generator=generator, dtype=torch.float64) + mean
    groups = torch.arange(4000) // 20
    found = intra_sentence_similarity(x, groups)
    assert abs(found["above_shuffled"].item()) < 5 * found["standard_error"].item()
    if mean:
        assert found["adjusted"].item() > 0.1
    known = text(600, 16, 60, seed=2)
    assert intra_sentence_similarity(*known)["above_shuffled"].item() > 0.2


def test_shuffled_is_the_statistic_of_other_sentences_of_the_same_sizes():
    x, groups = text(60, 8, 6)
    found = intra_sentence_similarity(x, groups, seed=3)
    order = hashed_order(60, seed=3)
    expected = loops(x, groups[order])["value"]
    assert found["shuffled"].item() == pytest.approx(expected, abs=1e-13)
    other = intra_sentence_similarity(x, groups, seed=4)
    assert other["shuffled"].item() != found["shuffled"].item()
    assert other["value"].item() == found["value"].item()
