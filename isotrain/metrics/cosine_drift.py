"""How far embeddings have turned from their reference. N embeddings, D dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import unit_rows


def cosine_drift(x: Tensor | Cloud, reference: Tensor) -> Tensor:
    """1 − mean cosine of `x [N, D]` with `reference [N, D]`, one by one; [0, 2], 0 = no drift.

    Computed as half the squared chord ½‖u_i − v_i‖² of unit vectors, which keeps the digits of a
    small drift. The cosine of a zero vector is 0 with any other vector, 1 with another zero vector.
    A mean cone that both share hides drift: subtract it first, or see `linear_cka`. No finite-N
    bias.

    Ours.

    >>> import torch
    >>> round(cosine_drift(torch.eye(2), torch.tensor([[3.0, 0.0], [1.0, 0.0]])).item(), 9)
    0.5
    """
    x = Cloud.of(x, min_rows=1).rows
    reference = Cloud(reference.to(x.device), min_rows=1).rows
    if x.shape != reference.shape:
        raise ValueError(
            f"reference must hold the same rows as x in the same width, {tuple(x.shape)}, "
            f"got {tuple(reference.shape)}; for another width use linear_cka"
        )
    chord_N = (unit_rows(x) - unit_rows(reference)).square().sum(dim=1)
    one_is_zero_N = (x == 0).all(dim=1) ^ (reference == 0).all(dim=1)
    return chord_N.mul(0.5).masked_fill(one_is_zero_N, 1.0).mean()
