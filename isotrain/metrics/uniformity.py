"""Uniformity of directions on the sphere. N embeddings, D dimensions."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import log_mean_potential, sampled_log_mean_potential, unit_rows


def uniformity(
    x: Tensor | Cloud,
    t: Annotated[float, Field(gt=0)] = 2.0,
    max_rows: int = 20_000,
    n_pairs: Annotated[int, Field(ge=2)] = 1_000_000,
    seed: int = 0,
) -> Tensor:
    """ln mean_{i<j} exp(−t‖u_i − u_j‖²) of `x [N, D]`; in [−2tN/(N − 1), 0], low = isotropic.

    u_i = x_i/‖x_i‖. 0 means one direction for all. Uniform on the sphere gives ln ₀F₁(D/2; t²) − 2t
    on average, about −3.99 for t = 2 and D = 768; N ≤ D + 1 embeddings can go below that, down to
    −2tN/(N − 1) (a simplex). Unbiased in N before the logarithm. Sees the mean cone. A zero vector
    has distance 1 to every other.

    Exact over all pairs for N ≤ `max_rows`, in O(N²·D) time; above that over `n_pairs` pairs i ≠ j
    drawn with replacement by a CPU generator of `seed`. Differentiable (the drawn form once).

    Wang and Isola 2020.

    >>> round(uniformity(torch.tensor([[2.0, 0.0], [-3.0, 0.0]])).item(), 6)
    -8.0
    """
    return uniformity_estimate(x, t, max_rows, n_pairs, seed)["value"]


@checked
def uniformity_estimate(
    x: Tensor | Cloud,
    t: Annotated[float, Field(gt=0)] = 2.0,
    max_rows: int = 20_000,
    n_pairs: Annotated[int, Field(ge=2)] = 1_000_000,
    seed: int = 0,
) -> dict[str, Tensor]:
    """`value` of `uniformity` of `x [N, D]`, its `standard_error`, and `n_pairs`, the pairs used.

    The standard error is that of sampling pairs of this cloud (delta method on the logarithm): 0
    where all pairs are used. How far another cloud of the same kind would be is not in it.

    >>> values = uniformity_estimate(torch.eye(3))
    >>> values["standard_error"].item(), values["n_pairs"].item()
    (0.0, 3.0)
    """
    x = Cloud.of(x).rows
    n, unit_ND = len(x), unit_rows(x)
    if n <= max_rows:
        n_pairs = n * (n - 1) // 2
        value, error = log_mean_potential(unit_ND, t), x.new_zeros(())
    else:
        generator = torch.Generator().manual_seed(seed)
        value, error = sampled_log_mean_potential(unit_ND, t, n_pairs, generator)
    value = value.clamp(max=0.0)  # rounding of vectors that coincide
    return {"value": value, "standard_error": error, "n_pairs": x.new_tensor(float(n_pairs))}
