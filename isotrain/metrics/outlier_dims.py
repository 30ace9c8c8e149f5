"""Outlier dimensions: the few coordinates that dominate a cloud. N embeddings, D dimensions."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud


@checked
def outlier_dims(
    x: Tensor | Cloud, n_top: Annotated[int, Field(ge=1)] = 3, variance_factor: float = 5.0
) -> dict[str, Tensor]:
    """How strongly, and which, single coordinates of `x [N, D]` dominate, as a flat dict.

    With u and v the unit vectors of distinct embeddings and CC_i = E[u_i·v_i], exact in O(N·D), so
    that Σ CC_i is the mean cosine; numbers k ≤ `n_top` count from the largest CC:

    - `contribution_k`: CC of the k-th dimension; in [−1, 1], mean cosine/D when all are alike
    - `share_k`: its part of the mean cosine (0 where that is not positive); 1/D when alike
    - `index_k`: the dimension, counted from 0
    - `largest_mean`: max |mean_i|/rms, rms over all entries; 0 when the mean is zero
    - `kurtosis`: mean of s⁴ over squared mean of s², s_i the rms of dimension i; in [1, D],
      1 when all are alike
    - `largest_kurtosis`: the largest E[y⁴]/E[y²]² over dimensions, y centred; about 3 for
      Gaussian coordinates, at most N
    - `n_high_variance`: dimensions with a variance above `variance_factor` × the mean variance

    Shares are noisy where the cone is weak.

    Timkey and van Schijndel 2021 (there over sampled pairs); kurtosis over dimensions as in He
    et al. 2024.

    >>> import torch
    >>> outlier_dims(torch.tensor([[9.0, 1.0], [9.0, -1.0], [9.0, 0.0]]))["index_1"].item()
    0.0
    """
    cloud = Cloud.of(x)
    n = cloud.n
    units, shape = cloud.unit_sums, cloud.shape_sums
    contribution_D = (units.sum_D.square() - units.square_D) / (n * (n - 1))
    cosine = contribution_D.sum()
    top_K, index_K = contribution_D.topk(min(n_top, cloud.d))
    share_K = torch.where(cosine > 0, top_K / torch.where(cosine > 0, cosine, 1.0), 0.0)
    mean_square_D = shape.square_D / n + cloud.mean_D.square()
    mean_square = _or_one(mean_square_D.mean())
    rounding_D = 8.0 * torch.finfo(torch.float64).eps * cloud.mean_D
    varies_D = shape.square_D > n * rounding_D.square()
    variance_D = torch.where(varies_D, shape.square_D, 0.0)
    fourth_D = torch.where(varies_D, shape.fourth_D, 0.0)
    values = {
        "largest_mean": cloud.mean_D.abs().amax() / mean_square.sqrt(),
        "kurtosis": (mean_square_D / mean_square).square().mean().clamp_min(1.0),
        "largest_kurtosis": (n * fourth_D / _or_one(variance_D.square())).amax(),
        "n_high_variance": (variance_D > variance_factor * variance_D.mean()).sum().double(),
    }
    for k, (top, share, index) in enumerate(zip(top_K, share_K, index_K, strict=True), start=1):
        values |= {f"contribution_{k}": top, f"share_{k}": share, f"index_{k}": index.double()}
    return values


def _or_one(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 1.0)
