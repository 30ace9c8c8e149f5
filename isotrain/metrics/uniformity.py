"""Uniformity of directions on the sphere. N embeddings, D dimensions."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import log_mean_potential, unit_rows


@checked
def uniformity(x: Tensor | Cloud, t: Annotated[float, Field(gt=0)] = 2.0) -> Tensor:
    """ln mean_{i<j} exp(−t‖u_i − u_j‖²) of `x [N, D]`; in [−2tN/(N − 1), 0], low = isotropic.

    u_i = x_i/‖x_i‖. 0 means one direction for all. Uniform on the sphere gives ln ₀F₁(D/2; t²) − 2t
    on average, about −3.99 for t = 2 and D = 768; N ≤ D + 1 embeddings can go below that, down to
    −2tN/(N − 1) (a simplex). Unbiased in N before the logarithm. Sees the mean cone. A zero vector
    has distance 1 to every other. Exact over all pairs, in O(N²·D) time: sample
    many embeddings first. Differentiable.

    Wang and Isola 2020.

    >>> import torch
    >>> round(uniformity(torch.tensor([[2.0, 0.0], [-3.0, 0.0]])).item(), 6)
    -8.0
    """
    value = log_mean_potential(unit_rows(Cloud.of(x).rows), t)
    return value.clamp(max=0.0)  # rounding of vectors that coincide
