"""Mean cosines over pairs of embeddings, with a jackknife over sentences.

N embeddings, D dimensions, G sentences, W words. C cells: the embeddings of a word in a sentence.
S is the sum of all unit vectors, S_g that of sentence g, n_g its number of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.groups import check_groups, group_sums, large_groups


class Estimate(NamedTuple):
    """A value over embeddings of sentences (0-d), and its leave-one-sentence-out values."""

    value: Tensor
    sentence_G: Tensor  # ids, ascending
    replicate_G: Tensor

    @property
    def error(self) -> Tensor:
        """Standard error √((G−1)/G · Σ(θ_g − θ̄)²), θ_g the value without sentence g.

        Embeddings of one sentence are not independent, as an error over embeddings would assume.
        """
        n = len(self.replicate_G)
        deviation_G = self.replicate_G - self.replicate_G.mean()
        return torch.sqrt((n - 1) / n * deviation_G.square().sum())

    def figures(self, name: str) -> dict[str, float]:
        """Value and standard error, as cells of a record."""
        return {name: float(self.value), f"{name}_error": float(self.error)}

    def less(self, other: Estimate) -> Estimate:
        """The difference of two estimates; shared variation cancels in its error.

        >>> a = mean_over_sentences(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([3, 5, 8]))
        >>> a.less(a).value.item(), a.less(a).error.item()
        (0.0, 0.0)
        """
        id_G = torch.unique(torch.cat([self.sentence_G, other.sentence_G]))
        without_2G = [
            estimate.value.expand(len(id_G)).scatter(
                0, torch.searchsorted(id_G, estimate.sentence_G), estimate.replicate_G
            )
            for estimate in (self, other)
        ]
        return Estimate(self.value - other.value, id_G, without_2G[0] - without_2G[1])


def mean_over_sentences(value_G: Tensor, sentence_G: Tensor) -> Estimate:
    """The mean of one value per sentence; its error is the standard deviation over √G.

    >>> round(mean_over_sentences(torch.tensor([1.0, 2.0, 6.0]), torch.arange(3)).error.item(), 4)
    1.5275
    """
    replicate_G = (value_G.sum() - value_G) / (len(value_G) - 1)
    return Estimate(value_G.mean(), sentence_G, replicate_G)


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of estimates over the same sentences, such as one per layer."""
    value = torch.stack([estimate.value for estimate in estimates]).mean()
    replicate_G = torch.stack([estimate.replicate_G for estimate in estimates]).mean(dim=0)
    return Estimate(value, estimates[0].sentence_G, replicate_G)


def anisotropy(x_ND: Tensor, sentences_N: Tensor) -> Estimate:
    """Mean cosine of two embeddings of different sentences, in [−1, 1].

    (‖S‖² − Σ‖S_g‖²)/(N² − Σn_g²): all pairs, exactly, in O(N·D); three sentences at least.
    Ethayarajh 2019, section 4.1 (there over 1,000 sampled pairs).

    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(anisotropy(x, torch.tensor([5, 5, 7, 8])).value.item(), 6)  # 4 of 10 pairs
    0.4
    """
    groups = check_groups(x_ND, sentences_N)
    if len(groups.id_G) < 3:
        raise ValueError(
            f"a sampling error over sentences needs 3 of them, got {len(groups.id_G)}; give rows "
            "of more sentences"
        )
    sum_GD = group_sums(unit_rows(x_ND), groups)
    sum_D, square_G = sum_GD.sum(dim=0), sum_GD.square().sum(dim=1)
    count_G = groups.count_G.to(sum_GD.dtype)
    n, n_within = count_G.sum(), count_G.square().sum()
    value = (sum_D.square().sum() - square_G.sum()) / (n.square() - n_within)
    rest_G = (sum_D - sum_GD).square().sum(dim=1) - (square_G.sum() - square_G)
    replicate_G = rest_G / ((n - count_G).square() - (n_within - count_G.square()))
    return Estimate(value, groups.id_G, replicate_G)


def occurrences(x_ND: Tensor, sentences_N: Tensor) -> Estimate:
    """Mean cosine of two embeddings of a word: its self-similarity, (‖S‖² − N)/(N(N−1)).

    The error is NaN for fewer than three sentences, or if one has all embeddings but one.
    Ethayarajh 2019, definition 1.

    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> round(occurrences(x, torch.tensor([5, 6, 7])).value.item(), 6)  # 1 of 3 pairs
    0.333333
    """
    estimate = self_similarity(x_ND, torch.zeros_like(sentences_N), sentences_N, 2)
    is_few = len(estimate.replicate_G) < 3
    return estimate._replace(replicate_G=estimate.replicate_G * torch.nan) if is_few else estimate


def self_similarity(x_ND: Tensor, words_N: Tensor, sentences_N: Tensor, min_count: int) -> Estimate:
    """Mean over words of the mean cosine of two occurrences of a word, in [−1, 1].

    Exact over all pairs of words with at least `min_count` embeddings, in O(N·D). A
    leave-one-sentence-out value drops words that are left with one embedding. The error is NaN
    where no word is left. Ethayarajh 2019, definition 1.

    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [3.0, 3.0]])
    >>> words = torch.tensor([4, 4, 4, 9, 9])
    >>> found = self_similarity(x, words, torch.tensor([1, 2, 3, 1, 2]), 2)
    >>> round(found.value.item(), 6), found.replicate_G.round().tolist()  # one row of 9 is no pair
    (0.666667, [0.0, 0.0, 1.0])
    """
    sentences = check_groups(x_ND, sentences_N)
    words = check_groups(x_ND, words_N)
    large_N = large_groups(words, min_count)[words.index_N]
    unit_ND, n_sentences = unit_rows(x_ND[large_N]), len(sentences.id_G)
    words = check_groups(unit_ND, words_N[large_N])
    cell_N = words.index_N * n_sentences + sentences.index_N[large_N]
    cells = check_groups(unit_ND, cell_N)
    word_C, sentence_C = cells.id_G // n_sentences, cells.id_G % n_sentences
    square_N1 = unit_ND.square().sum(dim=1, keepdim=True)  # 1; 0 for a zero vector
    square_W, square_C = (group_sums(square_N1, groups)[:, 0] for groups in (words, cells))
    sum_WD, sum_CD = group_sums(unit_ND, words), group_sums(unit_ND, cells)
    count_W = words.count_G.to(x_ND.dtype)
    value_W = (sum_WD.square().sum(dim=1) - square_W) / (count_W * (count_W - 1))
    n_left_C = count_W[word_C] - cells.count_G
    rest_C = (sum_WD[word_C] - sum_CD).square().sum(dim=1) - (square_W[word_C] - square_C)
    is_pair_C = n_left_C > 1
    rest_C = torch.where(is_pair_C, rest_C / (n_left_C * (n_left_C - 1)).clamp_min(1), 0.0)
    zero_G = x_ND.new_zeros(n_sentences)
    total_G = value_W.sum() + zero_G.index_add(0, sentence_C, rest_C - value_W[word_C])
    n_lost_G = zero_G.index_add(0, sentence_C, (~is_pair_C).to(x_ND.dtype))
    n_left_G = len(value_W) - n_lost_G
    replicate_G = torch.where(n_left_G > 0, total_G / n_left_G, torch.nan)
    return Estimate(value_W.mean(), sentences.id_G, replicate_G)
