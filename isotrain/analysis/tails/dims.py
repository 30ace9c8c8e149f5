"""Which dimensions dominate the rows of a layer. L layers, N rows, D dimensions, G sentences."""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.groups import check_groups, group_sums
from isotrain.geometry.rows import check_cloud


def extreme_shares(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Share `[D]` of the rows whose smallest entry sits in each dimension, and of the largest.

    Each of the two sums to 1 and is near 1/D where no dimension stands out. Equal entries count
    for the first of their dimensions. Unchanged by the length of rows; a rotation changes all.

    Raises:
        ValueError: not `[N, D]`, or a NaN or infinity.

    Luo 2020.

    >>> low, high = extreme_shares(torch.tensor([[-9.0, 0.0, 1.0], [-8.0, 3.0, 1.0]]))
    >>> low.tolist(), high.tolist()
    ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5])
    """
    x_ND = check_cloud(x_ND, min_rows=1)
    n, d = x_ND.shape
    low_D, high_D = (
        torch.bincount(at_N, minlength=d).double() / n
        for at_N in (x_ND.argmin(dim=1), x_ND.argmax(dim=1))
    )
    return low_D, high_D


def share_error(hit_N: Tensor, sentences_N: Tensor) -> float:
    """Standard error of the share of rows that are hits, over sentences.

    √(Σ_g (h_g − n_g·p)²)/N, h_g the hits among the n_g rows of sentence g and p the share: rows
    of one sentence are no independent draws. A hit is 1, or a part of it, such as the share of
    layers in which a row is one. In [0, 1].

    >>> round(share_error(torch.tensor([1, 1, 0, 0]), torch.tensor([3, 3, 5, 5])), 4)
    0.3536
    """
    hit_N1 = hit_N.double()[:, None]
    groups = check_groups(hit_N1, sentences_N)
    hits_G, share = group_sums(hit_N1, groups)[:, 0], hit_N1.mean()
    spread = (hits_G - groups.count_G * share).square().sum()
    return float(spread.sqrt() / len(hit_N1))


def mean_scores(mean_LD: Tensor) -> Tensor:
    """How far each dimension of a mean vector lies from the others `[L, D]`, in their sd.

    (m_i − m̄)/s, m̄ and s the mean and standard deviation (divisor D) of the D entries of the mean
    vector of a layer. In [−√(D−1), √(D−1)]; zeros where all entries are equal.

    >>> mean_scores(torch.tensor([[1.0, 3.0, 1.0, 3.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    mean_LD = mean_LD.double()
    apart_LD = mean_LD - mean_LD.mean(dim=1, keepdim=True)
    spread_L1 = apart_LD.square().mean(dim=1, keepdim=True).sqrt()
    return apart_LD / torch.where(spread_L1 > 0, spread_L1, 1.0)


def outlier_dimensions(score_LD: Tensor, threshold: float, layers_share: float) -> list[int]:
    """Dimensions that are beyond the threshold in enough layers, the farthest first.

    Dimension i is one where |score| > `threshold` in at least `layers_share` of the L layers.
    Chance alone puts 0.27 % of the entries of a Gaussian mean vector beyond 3, so one layer says
    little: with D = 768 two dimensions. None can be found where √(D−1) ≤ threshold.

    >>> outlier_dimensions(torch.tensor([[0.0, 4.0, -5.0], [0.0, 1.0, -6.0]]), 3.0, 0.75)
    [2]
    """
    beyond_D = (score_LD.abs() > threshold).double().mean(dim=0) >= layers_share
    order_D = score_LD.abs().mean(dim=0).argsort(descending=True, stable=True)
    return [int(i) for i in order_D if beyond_D[i]]
