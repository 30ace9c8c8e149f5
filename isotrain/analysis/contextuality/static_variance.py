"""How much a static vector explains, as the repository of Ethayarajh (2019) computes it.

n rows, D dimensions, N rows of a cloud, G words or sentences.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import (
    check_groups,
    first_direction_share,
    hashed_order,
    large_groups,
    sample_groups,
)

N_RANDOM = 1000  # sentences of the baseline, one occurrence of each


class StaticVariance(NamedTuple):
    """What one vector explains of each word, and of random occurrences; in [0, 1]."""

    principal_G: Tensor  # share of the first principal component of each word's occurrences
    singular_G: Tensor  # share of their variance along their first uncentred direction
    random: Tensor  # the same of random occurrences, 0-d


def variance_along_first(x: Tensor) -> Tensor:
    """Share of the variance of rows that lies along their first singular direction; in [0, 1].

    With v the first right singular vector of the rows `[n, D]` as they are, var(x v)/Σ_d var(x_d):
    what scikit-learn's `TruncatedSVD` calls its first `explained_variance_ratio_`. The direction
    is uncentred and the variance about the mean, so that rows in a narrow cone, whose first
    direction is near their mean, give almost 0, and not almost 1. Rows without variance give 0.

    Raises:
        ValueError: not `[n, D]`, n < 2, or a NaN or infinity.

    >>> round(variance_along_first(torch.tensor([[9.0, 1.0], [9.0, -1.0]])).item(), 6)
    0.0
    """
    x_nD = Cloud.of(x).rows
    if x_nD.shape[0] <= x_nD.shape[1]:
        first_D = x_nD.T @ torch.linalg.eigh(x_nD @ x_nD.T).eigenvectors[:, -1]
        first_D = first_D / first_D.norm().clamp_min(torch.finfo(first_D.dtype).tiny)
    else:
        first_D = torch.linalg.eigh(x_nD.T @ x_nD).eigenvectors[:, -1]
    total = x_nD.var(dim=0, correction=0).sum()
    along = (x_nD @ first_D).var(correction=0)
    return torch.where(total > 0, along / torch.where(total > 0, total, 1.0), 0.0)


def static_variance(
    x_ND: Tensor, words_N: Tensor, sentences_N: Tensor, min_count: int, seed: int
) -> StaticVariance:
    """Variance that one vector explains of each word that occurs `min_count` times or more.

    All occurrences of a word count, so that rare words give more: a first principal component has
    at least 1/(n − 1) of the variance of n rows. The baseline is of one occurrence of each of
    1,000 sentences, drawn by hashing places with the seed.

    The repository's code gives the mean of `principal_G` less `random`. Its stored figures are
    rather `singular_G`: some lie below 1/(n − 1) and 1/D, where no principal component can.

    Raises:
        ValueError: not one integer per row, or no word with `min_count` rows.

    Ethayarajh 2019, repository kawine/contextual.
    """
    words, sentences = check_groups(x_ND, words_N), check_groups(x_ND, sentences_N)
    fix = "lower analysis.min_count, or raise analysis.max_rows"
    chosen_G = large_groups(words, min_count, fix).tolist()
    places = torch.split(words.index_N.argsort(stable=True), words.count_G.tolist())
    of_words = [x_ND[at_n] for at_n, chosen in zip(places, chosen_G, strict=True) if chosen]
    one_of_each_G = sample_groups(sentences, sentences.count_G > 0, 1, seed)[:, 0]
    random_n = one_of_each_G[hashed_order(len(one_of_each_G), seed)[:N_RANDOM]]
    principal = [first_direction_share(x_nD[None], center=True)[0] for x_nD in of_words]
    singular = [variance_along_first(x_nD) for x_nD in of_words]
    random = variance_along_first(x_ND[random_n])
    return StaticVariance(torch.stack(principal), torch.stack(singular), random)
