"""Self-similarity against the loop over words and pairs, and against sampled pairs."""

import random

import numpy as np
import pytest
import torch

from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.self_similarity import self_similarity
from tests.metrics.clouds import floats


def words(n, d, n_words, seed=0, mean=0.5, noise=1.0):
    """Occurrences around one vector per word, off the origin; a few words are rare."""
    generator = torch.Generator().manual_seed(seed)
    word_GD = torch.randn(n_words, d, generator=generator, dtype=torch.float64) + mean
    groups = (torch.rand(n, generator=generator) ** 2 * n_words).long()
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return word_GD[groups] + noise * noise_ND, groups


def cosine(a, b):
    length = float(a.norm() * b.norm())
    return float(a @ b) / length if length else 0.0


def double_loop(x, groups, min_count):
    """Ethayarajh 2019, word by word and pair by pair."""
    values = []
    for word in sorted(set(groups.tolist())):
        rows = x[groups == word]
        n = len(rows)
        if n >= min_count:
            pairs = [cosine(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j]
            values.append(sum(pairs) / len(pairs))
    return values


@pytest.mark.parametrize("min_count", [2, 5, 9])
@pytest.mark.parametrize("d", [3, 100])
def test_equals_the_loops(min_count, d):
    x, groups = words(60, d, 8)
    x[4] = 0.0
    values = double_loop(x, groups, min_count)
    assert 1 < len(values) <= 8
    everyone = torch.zeros(60, dtype=torch.int64)
    (baseline,) = double_loop(x, everyone, 2)
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


def test_five_rows_are_asked_by_default():
    x, groups = words(60, 4, 8)
    assert self_similarity(x, groups) == self_similarity(x, groups, min_count=5)
    assert self_similarity(x, groups)["n_groups"] < self_similarity(x, groups, 4)["n_groups"]


def test_baseline_is_the_mean_cosine_of_the_cloud():
    x, groups = words(60, 4, 8)
    assert self_similarity(x, groups)["baseline"].item() == pytest.approx(
        mean_cosine(x).item(), abs=1e-14
    )


def test_the_sampled_definition_agrees_within_its_error():
    """At most 1,000 pairs a word, 1,000 pairs with replacement for the baseline."""
    x, groups = words(600, 8, 6, seed=1, noise=0.7)
    draw = random.Random(0)
    values = []
    for word in groups.unique().tolist():
        rows = x[groups == word]
        pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows)) if i != j]
        pairs = draw.sample(pairs, min(1000, len(pairs)))
        values.append(np.mean([cosine(rows[i], rows[j]) for i, j in pairs]))
    random_pairs = [cosine(draw.choice(x), draw.choice(x)) for _ in range(1000)]
    found = floats(self_similarity(x, groups))
    error = np.std(random_pairs) / 1000**0.5
    assert found["value"] == pytest.approx(np.mean(values), abs=0.01)
    assert found["baseline"] == pytest.approx(np.mean(random_pairs), abs=3 * error)
    assert found["adjusted"] > 0.3  # more than the tolerances


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


def test_words_weigh_equally_whatever_their_number_of_rows():
    static = torch.tensor([[1.0, 0.0, 0.0]]).repeat(50, 1)
    x = torch.cat([static, torch.eye(3)[1:]])
    groups = torch.tensor([0] * 50 + [1] * 2)
    assert self_similarity(x, groups, min_count=2)["value"].item() == 0.5


def test_no_bias_at_any_number_of_rows():
    """Rows without direction: 0 within the error it states."""
    generator = torch.Generator().manual_seed(0)
    for n in (2, 5, 40):
        x = torch.randn(200 * n, 16, generator=generator)
        found = floats(self_similarity(x, torch.arange(200).repeat_interleave(n), min_count=2))
        assert abs(found["value"]) < 3 * found["standard_error"]
        # The stated error is that of 200 words of n rows: sd of a pair's cosine is 1/√D.
        expected = (2 / (n * (n - 1)) / 16 / 200) ** 0.5
        assert found["standard_error"] == pytest.approx(expected, rel=0.4)


def test_translation_moves_it():
    x, groups = words(60, 8, 5)
    moved = self_similarity(x + 5.0, groups)["value"] - self_similarity(x, groups)["value"]
    assert moved > 0.1


def test_a_mean_of_norm_16000_keeps_the_digits_of_the_difference():
    x, groups = words(60, 16, 5)
    far = x + 4000.0
    # 1 − cos = ‖u − v‖²/2, from the differences: no digit is lost to the 1.
    unit = far / far.norm(dim=1, keepdim=True)
    apart = 0.5 * (unit[:, None] - unit[None]).square().sum(dim=2)
    within = []
    for word in range(5):
        rows = apart[groups == word][:, groups == word]
        if len(rows) >= 5:
            within.append(float(rows.sum() / (len(rows) * (len(rows) - 1))))
    expected = float(apart.sum() / (60 * 59)) - np.mean(within)
    assert 1e-9 < expected < 1e-6
    assert self_similarity(far, groups)["adjusted"].item() == pytest.approx(expected, rel=1e-5)


def test_errors():
    x, groups = words(20, 3, 4)
    with pytest.raises(ValueError, match=r"no group has 30 rows: the largest is group \d"):
        self_similarity(x, groups, min_count=30)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        self_similarity(x, groups, min_count=1)
    with pytest.raises(ValueError, match=r"integers, got torch.float32"):
        self_similarity(x, groups.float())
    with pytest.raises(ValueError, match=r"shape \(20,\), got \(19,\)"):
        self_similarity(x, groups[1:])
