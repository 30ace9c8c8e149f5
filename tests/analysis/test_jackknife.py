"""Mean cosines over pairs, against loops; their errors, against leaving out and against draws."""

import math

import pytest
import torch

from isotrain.analysis.jackknife import (
    anisotropy,
    mean_of,
    mean_over_sentences,
    occurrences,
    self_similarity,
)
from tests.slow_cosines import mean_of_pairs, means_within


def cloud(n_sentences=9, seed=0, width=5):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 5, (n_sentences,), generator=generator)
    sentences_N = torch.arange(n_sentences).repeat_interleave(counts)
    own_ND = torch.randn(n_sentences, width, generator=generator)[sentences_N]
    rows_ND = own_ND + 0.7 * torch.randn(len(sentences_N), width, generator=generator) + 0.5
    shuffled = torch.randperm(len(sentences_N), generator=generator)
    return rows_ND.double()[shuffled], 10 * sentences_N[shuffled] - 7


def slow_anisotropy(x_ND, sentences_N):
    return mean_of_pairs(x_ND, lambda i, j: sentences_N[i] != sentences_N[j])


def slow_occurrences(x_ND, sentences_N):
    return mean_of_pairs(x_ND)


def slow_error(measure, x_ND, sentences_N):
    left_out = []
    for sentence in sentences_N.unique():
        rest = sentences_N != sentence
        left_out.append(measure(x_ND[rest], sentences_N[rest]))
    return jackknife(left_out)


def jackknife(left_out):
    n, mean = len(left_out), sum(left_out) / len(left_out)
    return math.sqrt((n - 1) / n * sum((value - mean) ** 2 for value in left_out))


def slow_of_words(x_ND, words_N, chosen):
    """Mean over the chosen words that have two rows of the mean cosine of their pairs."""
    own_N = torch.isin(words_N, torch.tensor(chosen))
    found = means_within(x_ND[own_N], words_N[own_N])
    return sum(found) / len(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("measure", "slow"), [(anisotropy, slow_anisotropy), (occurrences, slow_occurrences)]
)
def test_against_loops_over_pairs(measure, slow, seed):
    x_ND, sentences_N = cloud(seed=seed)
    found = measure(x_ND, sentences_N)
    assert found.value.item() == pytest.approx(slow(x_ND, sentences_N), abs=1e-12)
    assert found.error.item() == pytest.approx(slow_error(slow, x_ND, sentences_N), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_words_and_their_difference_from_anisotropy_against_loops(seed):
    """Words are chosen once; some sentences leave a word a row, which then counts no more."""
    x_ND, sentences_N = cloud(seed=seed)
    words_N = torch.tensor([(7 * i) % 11 % 4 for i in range(len(x_ND))])
    words_N[:2], sentences_N[:2] = 9, sentences_N[0]  # both rows of word 9 in one sentence
    chosen = [int(w) for w in words_N.unique() if (words_N == w).sum() >= 2]
    own, cone = self_similarity(x_ND, words_N, sentences_N, 2), anisotropy(x_ND, sentences_N)
    assert own.value.item() == pytest.approx(slow_of_words(x_ND, words_N, chosen), abs=1e-12)
    without, apart = [], []
    for sentence in sentences_N.unique():
        rest = sentences_N != sentence
        without.append(slow_of_words(x_ND[rest], words_N[rest], chosen))
        apart.append(without[-1] - slow_anisotropy(x_ND[rest], sentences_N[rest]))
    assert own.replicate_G.tolist() == pytest.approx(without, abs=1e-12)
    adjusted = own.less(cone)
    assert adjusted.value.item() == pytest.approx((own.value - cone.value).item(), abs=1e-15)
    assert adjusted.error.item() == pytest.approx(jackknife(apart), abs=1e-12)


def test_sentences_of_one_side_alone_leave_the_other_as_it_is():
    one = mean_over_sentences(torch.tensor([1.0, 2.0, 6.0]).double(), torch.tensor([2, 3, 9]))
    other = mean_over_sentences(torch.tensor([4.0, 0.0]).double(), torch.tensor([3, 5]))
    found = one.less(other)
    assert found.sentence_G.tolist() == [2, 3, 5, 9]
    assert found.replicate_G.tolist() == [4.0 - 2.0, 3.5 - 0.0, 3.0 - 4.0, 1.5 - 2.0]


def test_a_mean_over_sentences_and_one_over_layers():
    values_G = torch.tensor([1.0, 4.0, 2.0, 9.0]).double()
    found = mean_over_sentences(values_G, torch.arange(4))
    assert found.value.item() == 4.0
    assert found.error.item() == pytest.approx(values_G.std().item() / 2)
    both = mean_of([found, mean_over_sentences(3 * values_G, torch.arange(4))])
    assert both.value.item() == 8.0
    assert both.error.item() == pytest.approx(values_G.std().item())


def test_the_error_is_the_spread_over_draws():
    generator = torch.Generator().manual_seed(1)
    sentences_N = torch.arange(60).repeat_interleave(4)
    values, errors = [], []
    for _ in range(300):
        own_ND = torch.randn(60, 3, generator=generator).repeat_interleave(4, dim=0)
        x_ND = own_ND + 0.3 * torch.randn(240, 3, generator=generator)
        x_ND = x_ND + torch.tensor([1.0, 0.0, 0.0])
        found = anisotropy(x_ND.double(), sentences_N)
        values.append(found.value)
        errors.append(found.error)
    spread = torch.stack(values).std()
    assert torch.stack(errors).mean() / spread == pytest.approx(1.0, abs=0.12)


def test_too_few_sentences():
    with pytest.raises(ValueError, match="needs 3 of them, got 2; give rows of more sentences"):
        anisotropy(torch.eye(3), torch.tensor([0, 0, 1]))
    with pytest.raises(ValueError, match="no group has 2 rows"):
        occurrences(torch.eye(1), torch.tensor([0]))
    found = occurrences(torch.eye(3), torch.tensor([0, 0, 1]))
    assert found.value.item() == pytest.approx(0.0)
    assert found.error.isnan()
    # Without its first sentence one row is left, and no pair.
    assert occurrences(torch.eye(4), torch.tensor([0, 0, 0, 1])).error.isnan()
    assert occurrences(torch.eye(4), torch.tensor([0, 0, 1, 2])).error.isfinite()
