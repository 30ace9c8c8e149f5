"""Mean cosines over pairs of rows, with their sampling error over sentences.

N rows, D dimensions, G sentences. S is the sum of all unit rows, S_g that of sentence g, n_g its
rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.groups import check_groups, group_sums


def anisotropy(x_ND: Tensor, sentences_N: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of two rows of different sentences, and its standard error over sentences.

    (‖S‖² − Σ‖S_g‖²)/(N² − Σn_g²): all pairs, exactly, in O(N·D). The error is the jackknife's,
    √((G−1)/G · Σ(θ_g − θ̄)²), θ_g the mean without sentence g: rows of one sentence are no
    independent draws, which an error over rows would take them for. Both are 0-d tensors in the
    precision of `x`; the mean lies in [−1, 1].

    Raises:
        ValueError: not one integer per row, or fewer than three sentences.

    Ethayarajh 2019, section 4.1 (there over 1,000 sampled pairs).

    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(anisotropy(x, torch.tensor([5, 5, 7, 8]))[0].item(), 6)  # 4 of 10 pairs
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
    n, within = count_G.sum(), count_G.square().sum()
    value = (sum_D.square().sum() - square_G.sum()) / (n.square() - within)
    rest_G = (sum_D - sum_GD).square().sum(dim=1) - (square_G.sum() - square_G)
    theta_G = rest_G / ((n - count_G).square() - (within - count_G.square()))
    return value, _error(theta_G)


def occurrences(x_ND: Tensor, sentences_N: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of two rows of one word, and its standard error over sentences.

    The self-similarity of the word, (‖S‖² − N)/(N(N−1)) over all pairs of distinct rows, exactly,
    with the jackknife error of `anisotropy`. The error is NaN for fewer than three sentences, and
    where one of them has all rows but one.

    Raises:
        ValueError: not one integer per row, or fewer than two rows.

    Ethayarajh 2019, definition 1.

    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> round(occurrences(x, torch.tensor([5, 6, 7]))[0].item(), 6)  # 1 of 3 pairs
    0.333333
    """
    groups = check_groups(x_ND, sentences_N)
    if len(x_ND) < 2:
        raise ValueError(f"a pair needs two rows, got {len(x_ND)}; give more occurrences")
    unit_ND = unit_rows(x_ND)
    sum_GD = group_sums(unit_ND, groups)
    own_G = group_sums(unit_ND.square().sum(dim=1, keepdim=True), groups)[:, 0]
    sum_D, count_G = sum_GD.sum(dim=0), groups.count_G.to(x_ND.dtype)
    n, own = count_G.sum(), own_G.sum()
    value = (sum_D.square().sum() - own) / (n * (n - 1))
    left_G = n - count_G
    if len(count_G) < 3 or left_G.min() < 2:
        return value, value.new_tensor(torch.nan)
    rest_G = (sum_D - sum_GD).square().sum(dim=1) - (own - own_G)
    return value, _error(rest_G / (left_G * (left_G - 1)))


def _error(theta_G: Tensor) -> Tensor:
    """The jackknife's standard error, from the values without each group."""
    n = len(theta_G)
    return torch.sqrt((n - 1) / n * (theta_G - theta_G.mean()).square().sum())
