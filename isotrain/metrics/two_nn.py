"""Intrinsic dimension from the two nearest neighbours. N embeddings, D dimensions, K kept."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.neighbours import nearest_neighbours

REPEATED = 64.0 * torch.finfo(torch.float32).eps  # distance of equal texts, of their length
ROUNDING = 64.0 * torch.finfo(torch.float64).eps


@checked
def two_nn(x: Tensor | Cloud, discard: Annotated[float, Field(ge=0, lt=1)] = 0.1) -> Tensor:
    """Intrinsic dimension of `x [N, D]` (TwoNN); in (0, ∞), up to D if isotropic.

    With μ = r₂/r₁, the ratio of the distances to the second and first nearest neighbour, P(μ > t) =
    t⁻ᵈ where the density is even on the scale of r₂. The value is the slope d through the origin of
    −ln(1 − F(μ)) on ln μ, by least squares, F(μ_(i)) = i/N, without the `discard` fraction of the
    largest ratios (the very largest always goes: its 1 − F is 0). Exact. Like `lid` it sees neither
    the mean cone nor the scale, and is biased low where D is large; it looks at the smallest scale
    there is, so noise weighs more. No gradient.

    Duplicates, in single precision up to rounding (a text in two batches), have no ratio and are
    dropped; their neighbours keep μ = 1, which pulls the slope up.
    If every μ is 1 to rounding (a lattice), D is returned.

    Raises:
        ValueError: fewer than 3 ratios left.

    Facco et al. 2017; scikit-dimension has the same trimmed fit, and the same value.

    >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    >>> round(two_nn(x).item(), 1)
    2.6
    """
    cloud = Cloud.of(x, min_rows=3)
    x = cloud.rows
    share = 0.0 if cloud.x.dtype == torch.float64 else REPEATED / cloud.shrink
    rounding_N = share * (x * cloud.shrink).norm(dim=1)  # no square overflows
    r_N2 = nearest_neighbours(x, 2).distance_QK
    log_ratio_N = (r_N2[:, 1] / r_N2[:, 0])[r_N2[:, 0] > rounding_N].log()
    n = len(log_ratio_N)
    n_kept = min(int(n * (1 - discard)), n - 1)
    if n_kept < 3:
        raise ValueError(
            f"two_nn needs at least 3 rows to fit, {max(n_kept, 0)} are left of {len(x)}: "
            f"{len(x) - n} coincide with another row and discard = {discard} takes its share; "
            "give more rows, drop repeated ones or lower discard"
        )
    log_ratio_K = log_ratio_N.sort().values[:n_kept]
    if not bool(log_ratio_K[-1] > ROUNDING):
        return x.new_tensor(float(x.shape[1]))
    rank_K = torch.arange(1, n_kept + 1, dtype=x.dtype, device=x.device)
    log_survival_K = -torch.log1p(-rank_K / n)
    return (log_ratio_K @ log_survival_K) / log_ratio_K.square().sum()
