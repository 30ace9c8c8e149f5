"""α-ReQ: how fast the eigenvalues of a cloud fall. N embeddings, D dimensions."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud


@checked
def alpha_req(
    x: Tensor | Cloud,
    first: Annotated[int, Field(ge=1)] = 11,
    last: Annotated[int, Field(ge=2)] = 50,
    center: bool = True,
) -> Tensor:
    """Decay α of the eigenvalues of `x [N, D]`, λ_i ∝ i^−α; ≥ 0, 0 = isotropic.

    Minus the slope of the least-squares line through (ln i, ln λ_i), i from `first` to `last`: the
    head of a spectrum is no power law and its tail is noise. With r < `last` eigenvalues that are
    not zero, the window ends at r and starts at r/2 at the latest. Biased high for N < 5·D.

    Raises:
        ValueError: fewer than 3 eigenvalues above zero, or `last` not above `first`.

    Agrawal et al. 2022.

    >>> import torch
    >>> scale_D = torch.arange(1.0, 9.0) ** -0.5  # λ_i = i^−1 up to a factor
    >>> x = torch.cat([torch.diag(scale_D), -torch.diag(scale_D)])
    >>> round(alpha_req(x).item(), 6)
    1.0
    """
    if last <= first:
        raise ValueError(f"last must be above first, got first={first}, last={last}")
    value_D = Cloud.of(x).spectrum(center)
    rank = int((value_D > 0).sum())
    if rank < 3:
        raise ValueError(
            f"a slope needs at least 3 eigenvalues that are not zero, got {rank}; measure more rows"
        )
    if rank < last:
        last, first = rank, min(first, rank // 2)
    log_index = torch.arange(first, last + 1, dtype=value_D.dtype, device=value_D.device).log()
    log_index = log_index - log_index.mean()
    log_value = value_D[first - 1 : last].log()
    return -(log_index @ log_value) / (log_index @ log_index)
