"""Anisotropy over pairs of different sentences, with its sampling error.

N rows, D dimensions, G sentences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.groups import check_groups, group_sums


def anisotropy(x_ND: Tensor, sentences_N: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of two rows of different sentences, and its standard error over sentences.

    With S the sum of all unit rows, S_g those of sentence g and n_g its rows, the mean is
    (‖S‖² − Σ‖S_g‖²)/(N² − Σn_g²): all pairs, exactly, in O(N·D). The error is the jackknife's,
    √((G−1)/G · Σ(θ_g − θ̄)²), θ_g the mean without sentence g: rows of one sentence are no
    independent draws, which an error over rows would take them for.

    Raises:
        ValueError: not one integer per row, or fewer than three sentences.

    Ethayarajh 2019, section 4.1 (there over 1,000 sampled pairs).

    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(anisotropy(x, torch.tensor([5, 5, 7, 8]))[0].item(), 6)  # 4 of 10 pairs
    0.4
    """
    groups = check_groups(x_ND, sentences_N)
    n_groups = len(groups.id_G)
    if n_groups < 3:
        raise ValueError(f"a sampling error over sentences needs 3 of them, got {n_groups}")
    sum_GD = group_sums(unit_rows(x_ND), groups)
    sum_D, square_G = sum_GD.sum(dim=0), sum_GD.square().sum(dim=1)
    count_G = groups.count_G.to(sum_GD.dtype)
    n, within = count_G.sum(), count_G.square().sum()
    value = (sum_D.square().sum() - square_G.sum()) / (n.square() - within)
    rest_G = (sum_D - sum_GD).square().sum(dim=1) - (square_G.sum() - square_G)
    theta_G = rest_G / ((n - count_G).square() - (within - count_G.square()))
    spread = (theta_G - theta_G.mean()).square().sum()
    return value, torch.sqrt((n_groups - 1) / n_groups * spread)
