"""Alignment of positive pairs. N pairs, D dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import mean_distance_power


def alignment(x: Tensor | Cloud, positives: Tensor, alpha: float = 2.0) -> Tensor:
    """Mean distance of positive pairs on the sphere, to the power alpha; [0, 2^alpha], 0 = equal.

    mean_i ‖u_i − v_i‖^alpha, with u_i and v_i the unit vectors of embedding i of `x [N, D]` and of
    `positives [N, D]`; for alpha = 2 that is 2 − 2·cos. Read it with uniformity: equal embeddings
    align perfectly. A zero vector stays zero, at distance 1 of any direction. Unchanged by one
    rotation of both clouds and by vector length; not by translation. No finite-N bias.
    Differentiable; a pair at distance 0 has gradient 0.

    Wang and Isola 2020.

    >>> import torch
    >>> round(alignment(torch.eye(2), torch.tensor([[5.0, 0.0], [1.0, 0.0]])).item(), 9)
    1.0
    """
    x = Cloud.of(x, min_rows=1).rows
    positives = Cloud(positives.to(x.device), min_rows=1).rows
    if x.shape != positives.shape:
        raise ValueError(
            f"positives must be one row for each row of x, {tuple(x.shape)}, "
            f"got {tuple(positives.shape)}; repeat rows that have several positives"
        )
    return mean_distance_power(x, positives, alpha)
