"""How alike the words of a sentence are to their mean, sentence by sentence.

N rows, D dimensions, G sentences of two words or more.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.groups import Groups, check_groups, group_sums, hashed_order, large_groups


class SentenceMeans(NamedTuple):
    """Ids of sentences, ascending, and mean cosines of their words with three means."""

    id_G: Tensor
    own_G: Tensor  # of all words of the sentence, as published
    others_G: Tensor  # of the other words of the sentence
    shuffled_G: Tensor  # as published, of as many words that were dealt out anew


def sentence_means(x_ND: Tensor, sentences_N: Tensor, seed: int) -> SentenceMeans:
    """Mean cosine of the words of each sentence with the mean of its words, in three forms.

    Their means over sentences are what `intra_sentence_similarity` gives, where one call has one
    form and no values of single sentences.

    Raises:
        ValueError: not one integer per row, or no sentence of two words.

    Ethayarajh 2019, definition 2.

    >>> import torch
    >>> found = sentence_means(torch.eye(4), torch.tensor([0, 0, 1, 1]), seed=0)
    >>> [[round(v, 4) for v in value_G.tolist()] for value_G in found[1:3]]
    [[0.7071, 0.7071], [0.0, 0.0]]
    """
    groups = check_groups(x_ND, sentences_N)
    large_G = large_groups(groups, 2)
    dealt = groups._replace(index_N=groups.index_N[hashed_order(len(x_ND), seed)])
    values = (
        _mean_cosines(x_ND, of, keep)[large_G]
        for of, keep in ((groups, True), (groups, False), (dealt, True))
    )
    return SentenceMeans(groups.id_G[large_G], *values)


def _mean_cosines(x_ND: Tensor, sentences: Groups, keep_own: bool) -> Tensor:
    """With the mean of all rows `[G]`; without `keep_own` of the others."""
    mean_ND = group_sums(x_ND, sentences)[sentences.index_N]
    if not keep_own:
        mean_ND = mean_ND - x_ND
    cosine_N1 = (unit_rows(x_ND) * unit_rows(mean_ND)).sum(dim=1, keepdim=True)
    return group_sums(cosine_N1, sentences)[:, 0] / sentences.count_G
