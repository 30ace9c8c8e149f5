"""Intra-sentence similarity against the loop over sentences and tokens."""

import math

import numpy as np
import pytest
import torch

from isotrain.geometry.groups import hashed_order
from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity

FORMS = ["published", "leave_one_out"]


def text(n, d, n_sentences, seed=0, mean=0.4):
    generator = torch.Generator().manual_seed(seed)
    about_GD = torch.randn(n_sentences, d, generator=generator, dtype=torch.float64)
    groups = torch.randint(n_sentences, (n,), generator=generator)
    groups[: 2 * n_sentences] = torch.arange(n_sentences).repeat(2)[:n]
    noise_ND = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return about_GD[groups] + noise_ND + mean, groups


def floats(found):
    """All but what depends on the order of rows."""
    return {name: value.item() for name, value in found.items() if "shuffled" not in name}


def cosine(a, b):
    length = float(a.norm() * b.norm())
    return float(a @ b) / length if length else 0.0


def loops(x, groups, form, min_count=2):
    values = []
    for sentence in sorted(set(groups.tolist())):
        rows = x[groups == sentence]
        n = len(rows)
        if n < min_count:
            continue
        cosines = []
        for i in range(n):
            others = [j for j in range(n) if form == "published" or j != i]
            cosines.append(cosine(rows[i], rows[others].mean(dim=0)))
        values.append(np.mean(cosines))
    different = [
        cosine(x[i], x[j]) for i in range(len(x)) for j in range(len(x)) if groups[i] != groups[j]
    ]
    return {
        "value": np.mean(values),
        "baseline": np.mean(different),
        "adjusted": np.mean(values) - np.mean(different),
        "n_groups": float(len(values)),
        "standard_error": np.std(values, ddof=1) / len(values) ** 0.5,
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("d", "min_count"), [(3, 2), (60, 2), (5, 7)])
def test_equals_the_loops(form, d, min_count):
    x, groups = text(40, d, 6)
    x[2] = 0.0
    groups[-1] = 99  # a sentence of one row is left out, but is a context for the baseline
    expected = loops(x, groups, form, min_count)
    assert 1 < expected["n_groups"] < 7
    found = floats(intra_sentence_similarity(x, groups, form, min_count))
    assert found == pytest.approx(expected, abs=1e-13)


def test_sentences_of_one_row_count_as_one_if_asked():
    x, groups = torch.eye(3), torch.tensor([0, 0, 5])
    found = floats(intra_sentence_similarity(x, groups, min_count=1))
    assert found["value"] == pytest.approx((math.sqrt(0.5) + 1.0) / 2)
    assert found["n_groups"] == 2.0
    assert intra_sentence_similarity(x, groups)["value"].item() == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("n", [2, 3, 10])
def test_orthogonal_and_equal_rows(n):
    groups = torch.arange(2).repeat_interleave(n)
    x = torch.eye(2 * n, dtype=torch.float64)
    published = floats(intra_sentence_similarity(x, groups))
    assert published["value"] == pytest.approx(1 / math.sqrt(n), abs=1e-14)  # the positive floor
    assert published["baseline"] == 0.0
    corrected = floats(intra_sentence_similarity(x, groups, "leave_one_out"))
    assert corrected["value"] == pytest.approx(0.0, abs=1e-14)
    for form in FORMS:
        found = floats(intra_sentence_similarity(torch.full((2 * n, 4), -0.1), groups, form))
        assert found["value"] == pytest.approx(1.0, abs=1e-14)
        assert found["adjusted"] == pytest.approx(0.0, abs=1e-14)


def test_leave_one_out_has_no_floor_and_the_published_form_does():
    generator = torch.Generator().manual_seed(0)
    for n in (2, 5, 20):
        x = torch.randn(300 * n, 32, generator=generator)
        groups = torch.arange(300).repeat_interleave(n)
        corrected = floats(intra_sentence_similarity(x, groups, "leave_one_out"))
        assert abs(corrected["value"]) < 3 * corrected["standard_error"]
        published = floats(intra_sentence_similarity(x, groups))
        assert published["value"] == pytest.approx(1 / math.sqrt(n), abs=0.02)


@pytest.mark.parametrize("form", FORMS)
def test_in_a_cone_it_is_the_root_of_the_mean_cosine(form):
    """The stated mismatch with the baseline: no sentence shows, and still √ρ − ρ."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 256, generator=generator) + 0.5
    found = floats(intra_sentence_similarity(x, torch.arange(40).repeat(100), form))
    assert found["baseline"] == pytest.approx(0.2, abs=0.01)  # 0.25/(1 + 0.25)
    assert found["value"] == pytest.approx(math.sqrt(found["baseline"]), abs=0.02)


def test_cancelling_rows_have_a_mean_of_zero_and_cosine_0():
    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [3.0, 0.0], [0.0, 3.0]])
    groups = torch.tensor([0, 0, 1, 1])
    found = intra_sentence_similarity(x, groups)["value"].item()
    assert found == pytest.approx((0.0 + math.sqrt(0.5)) / 2)
    corrected = intra_sentence_similarity(x, groups, "leave_one_out")["value"].item()
    assert corrected == pytest.approx((-1.0 + 0.0) / 2, abs=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_long_rows_weigh_in_the_mean(form):
    x, groups = text(30, 5, 3)
    longer = x.clone()
    longer[0] *= 50.0
    change = (
        intra_sentence_similarity(longer, groups, form)["value"]
        - intra_sentence_similarity(x, groups, form)["value"]
    )
    assert abs(change) > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_a_mean_of_norm_16000_keeps_the_digits(form):
    x, groups = text(30, 16, 3)
    far = x + 4000.0
    values = []  # 1 − cos = ‖u − v‖²/2
    for sentence in range(3):
        rows = far[groups == sentence]
        n = len(rows)
        total = rows.sum(dim=0)
        mean = total / n if form == "published" else (total - rows) / (n - 1)
        mean = mean / mean.norm(dim=-1, keepdim=True)
        apart = (rows / rows.norm(dim=1, keepdim=True) - mean).square().sum(dim=1) / 2
        values.append(float(apart.mean()))
    found = 1.0 - intra_sentence_similarity(far, groups, form)["value"].item()
    assert 1e-9 < np.mean(values) < 1e-6
    assert found == pytest.approx(np.mean(values), rel=1e-5)


def test_errors():
    x, groups = text(20, 3, 4)
    with pytest.raises(ValueError, match="published or leave_one_out, got 'loo'"):
        intra_sentence_similarity(x, groups, form="loo")
    with pytest.raises(ValueError, match="at least 2 for form=leave_one_out, got 1"):
        intra_sentence_similarity(x, groups, form="leave_one_out", min_count=1)
    with pytest.raises(ValueError, match="at least 1 for form=published, got 0"):
        intra_sentence_similarity(x, groups, min_count=0)
    with pytest.raises(ValueError, match="no group has 2 rows: the largest is group 0 with 1"):
        intra_sentence_similarity(x, torch.arange(20))
    with pytest.raises(ValueError, match="at least 2 groups, got 1"):
        intra_sentence_similarity(x, torch.zeros(20, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"integers, got torch.float64"):
        intra_sentence_similarity(x, groups.double())
    with pytest.raises(ValueError, match=r"shape \(20,\), got \(21,\)"):
        intra_sentence_similarity(x, torch.zeros(21, dtype=torch.int64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mean", [0.0, 0.3, 0.6])
def test_rows_dealt_out_anew_are_the_baseline_of_a_cone(form, mean):
    """No sentence shows: the published difference is √ρ − ρ and more, the shuffled one 0."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 256, generator=generator, dtype=torch.float64) + mean
    groups = torch.arange(4000) // 20
    found = intra_sentence_similarity(x, groups, form)
    assert abs(found["above_shuffled"].item()) < 5 * found["standard_error"].item()
    if mean:
        assert found["adjusted"].item() > 0.1
    known = text(600, 16, 60, seed=2)
    assert intra_sentence_similarity(*known, form)["above_shuffled"].item() > 0.2


def test_shuffled_is_the_statistic_of_other_sentences_of_the_same_sizes():
    x, groups = text(60, 8, 6)
    found = intra_sentence_similarity(x, groups, seed=3)
    order = hashed_order(60, seed=3)
    expected = loops(x, groups[order], "published")["value"]
    assert found["shuffled"].item() == pytest.approx(expected, abs=1e-13)
    other = intra_sentence_similarity(x, groups, seed=4)
    assert other["shuffled"].item() != found["shuffled"].item()
    assert other["value"].item() == found["value"].item()
