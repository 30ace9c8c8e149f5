"""Kernels of contrastive and ranking losses. N anchors, M candidates, B scored pairs."""

import torch
from torch import Tensor


def contrast(logits_NM: Tensor, decoupled: bool = False) -> Tensor:
    """Mean over anchors i of ln Σ_j exp(l_ij) − l_ii, in nats: candidate i is the positive of i.

    M ≥ N; all other candidates are negatives. In [0, ∞); `decoupled` leaves j = i out of the sum,
    and the value may be negative. One candidate alone is a positive without a negative: 0, with
    zero gradient.
    """
    n, m = logits_NM.shape
    if m == 1:
        return logits_NM.sum() * 0.0
    own_N = logits_NM.diagonal()
    if decoupled:
        is_own_NM = torch.eye(n, m, dtype=torch.bool, device=logits_NM.device)
        logits_NM = logits_NM.masked_fill(is_own_NM, -torch.inf)
    return (logits_NM.logsumexp(dim=1) - own_N).mean()


def ranking(score_B: Tensor, label_B: Tensor, scale: float) -> Tensor:
    """ln(1 + Σ exp(scale·(s_i − s_j))) over all i, j with y_i < y_j, in [0, ∞) nats.

    The i-th of B pairs has score s_i and label y_i, classes or graded; the loss falls as scores
    follow the order of the labels. Equal labels are not compared: 0, with zero gradient, where
    all are equal.
    """
    ahead_BB = score_B[:, None] - score_B[None, :]
    exponents = scale * ahead_BB[label_B[:, None] < label_B[None, :]]
    return torch.cat([exponents.new_zeros(1), exponents]).logsumexp(dim=0)
