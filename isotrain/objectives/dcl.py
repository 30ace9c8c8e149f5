"""Decoupled contrastive learning: SimCSE without the positive in the denominator.

N anchors, D dimensions, H hard negatives of an anchor.
"""

from torch import Tensor

from isotrain.objectives.simcse import SimCSE, simcse


def dcl(
    anchors_ND: Tensor,
    positives_ND: Tensor,
    negatives_NHD: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_negative_weight: float = 0.0,
    symmetric: bool = False,
) -> Tensor:
    """Mean of ln Σ_{c ≠ p_i} e^{s(a_i, c)/τ + α·[c ∈ H_i]} − s(a_i, p_i)/τ over anchors i, in nats.

    Arguments and symbols as in `simcse`, which is always larger: the positive p_i is left
    out of the sum, so its pull does not fade. May be negative; ln of the number of negatives where
    all embeddings are equal and α = 0; 0 for one anchor without negatives. Anchors and positives
    are `[N, D]`, hard negatives `[N, H, D]`.

    Yeh et al. 2022.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> dcl(x, x, temperature=0.5).item()  # −1/τ + 0/τ
    -2.0
    """
    return simcse(
        anchors_ND,
        positives_ND,
        negatives_NHD,
        temperature=temperature,
        hard_negative_weight=hard_negative_weight,
        symmetric=symmetric,
        decoupled=True,
    )


class DCL(SimCSE):
    """`dcl` of the vectors `[B, P, D]` or tokens `[N, D]` at one read point; else as `SimCSE`.

    >>> import torch
    >>> view = torch.eye(2)[:, None]
    >>> DCL(weight=1.0, width=2, temperature=0.5)([[view], [view]], torch.zeros(2)).item()
    -2.0
    """

    decoupled = True
