"""Explained variance as the repository computes it, against scikit-learn and loops."""

import pytest
import torch
from sklearn.decomposition import PCA, TruncatedSVD

from isotrain.analysis.contextuality.analysis import (
    static_variance,
    variance_along_first,
)


def cone(n, d, seed=0, offset=3.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(2.0, 0.3, d)
    return (torch.randn(n, d, generator=generator) * scale_D + offset).double()


@pytest.mark.parametrize(("n", "d"), [(6, 20), (40, 8), (12, 12)])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_variance_along_the_first_direction_against_scikit_learn(n, d, offset):
    x_nD = cone(n, d, offset=offset)
    svd = TruncatedSVD(n_components=1, algorithm="arpack", random_state=0).fit(x_nD.numpy())
    wanted = svd.explained_variance_ratio_[0]
    assert variance_along_first(x_nD).item() == pytest.approx(wanted, abs=1e-9)


def test_closed_forms_of_the_variance_along_the_first_direction():
    # All variance lies along the mean; across it: the example of the function.
    assert variance_along_first(torch.tensor([[9.0, 0.0], [5.0, 0.0]])).item() == pytest.approx(1.0)
    assert variance_along_first(torch.ones(4, 3)).item() == 0.0
    assert variance_along_first(torch.zeros(4, 3)).item() == 0.0
    with pytest.raises(ValueError, match="a cloud must be finite"):
        variance_along_first(torch.full((3, 2), torch.nan))


def words_and_sentences():
    counts = {7: 12, 3: 5, 9: 4, 1: 6}
    words_N = torch.tensor([word for word, n in counts.items() for _ in range(n)])
    shuffled = torch.randperm(len(words_N), generator=torch.Generator().manual_seed(3))
    return cone(len(words_N), 16), words_N[shuffled], torch.arange(len(words_N)) // 3


def test_means_over_words_against_scikit_learn():
    x_ND, words_N, sentences_N = words_and_sentences()
    found = static_variance(x_ND, words_N, sentences_N, 5, seed=0)
    own = [x_ND[words_N == word].numpy() for word in (7, 3, 1)]  # 9 occurs four times
    assert len(found.principal_G) == len(found.singular_G) == 3
    principal = [PCA(1).fit(x).explained_variance_ratio_[0] for x in own]
    singular = [
        TruncatedSVD(1, algorithm="arpack").fit(x).explained_variance_ratio_[0] for x in own
    ]
    assert sorted(found.principal_G.tolist()) == pytest.approx(sorted(principal), abs=1e-9)
    assert sorted(found.singular_G.tolist()) == pytest.approx(sorted(singular), abs=1e-9)


def test_the_baseline_is_of_one_word_of_each_sentence():
    x_ND, words_N, sentences_N = words_and_sentences()
    first = static_variance(x_ND, words_N, sentences_N, 5, seed=0).random
    assert static_variance(x_ND, words_N, sentences_N, 5, seed=0).random == first
    assert static_variance(x_ND, words_N, sentences_N, 5, seed=1).random != first
    # Rows of a sentence that are equal cannot be told apart, whichever of them is drawn.
    equal_ND = x_ND[sentences_N * 3]
    wanted = TruncatedSVD(1, algorithm="arpack").fit(x_ND[::3].numpy())
    for seed in (0, 1):
        found = static_variance(equal_ND, words_N, sentences_N, 5, seed).random
        assert found.item() == pytest.approx(wanted.explained_variance_ratio_[0], abs=1e-9)
