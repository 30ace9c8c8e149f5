"""VISReg: unit standard deviation of coordinates, and normally distributed slices.

N embeddings, D dimensions, M slices.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.rows import check_shape
from isotrain.objectives.base import Sliced

LEAST_STD = 1e-6  # that a coordinate is divided by


def visreg(
    x_ND: Tensor,
    slices_DM: Tensor,
    scale_weight: float = 1.0,
    shape_weight: float = 1.0,
    centre_weight: float = 1.0,
) -> Tensor:
    """Weighted sum of scale, shape and centre terms of embeddings `[N, D]`; at least 0.

    With m_j and σ_j the mean and the standard deviation (divided by N) of coordinate j:

    - scale: mean_j (1 − σ_j)²;
    - shape: the squared 2-Wasserstein distance of each slice to N(0, 1), averaged over the slices.
      A slice is z·w, z_nj = (x_nj − m_j)/σ_j, with w a column of `slices [D, M]`; its sorted values
      are compared with the quantiles Φ⁻¹(n/(N + 1)). Here σ is a constant, without gradient;
    - centre: mean_j m_j².

    Near a collapse the gradient of the scale term keeps its length, 2/√(N·D), where that of
    `sigreg` vanishes. That of the shape term grows with 1/σ (σ is at least 1e-6 there): clip
    gradients. Standard normal embeddings have a loss that falls to 0 with N. The shape term is
    invariant to the scale of each coordinate and to translation; all to the order of embeddings.
    The invariance term of the paper is left to the task, or to `alignment`.

    Wu, Balestriero and Levine 2026; centre term and quantiles of its released code.

    >>> x = torch.tensor([[3.0, 1.0], [-3.0, 1.0]])  # standard deviations 3 and 0, means 0 and 1
    >>> visreg(x, torch.eye(2), shape_weight=0.0).item()  # (4 + 1)/2 + (0 + 1)/2
    3.0
    """
    check_shape(x_ND, min_rows=2)
    n = len(x_ND)
    mean_D = x_ND.mean(dim=0)
    centred_ND = x_ND - mean_D
    std_D = centred_ND.norm(dim=0) / n**0.5
    standard_ND = centred_ND / std_D.detach().clamp(min=LEAST_STD)
    value_NM = (standard_ND @ slices_DM).sort(dim=0).values
    level_N = torch.arange(1, n + 1, dtype=torch.float64, device=x_ND.device) / (n + 1)
    quantile_N = torch.special.ndtri(level_N).to(x_ND.dtype)
    scale = (1.0 - std_D).square().mean()
    shape = (value_NM - quantile_N[:, None]).square().mean()
    centre = mean_D.square().mean()
    total: Tensor = scale_weight * scale + shape_weight * shape + centre_weight * centre
    return total


class VISReg(Sliced):
    """`visreg` of the embeddings of view 0, averaged over the read points.

    Args: those of `Sliced`, and
        scale_weight: factor of the squared distances of standard deviations from 1.
        shape_weight: factor of the distance of standardised slices to N(0, 1).
        centre_weight: factor of the squared means.
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        scale_weight: Annotated[float, Field(ge=0)] = 1.0,
        shape_weight: Annotated[float, Field(ge=0)] = 1.0,
        centre_weight: Annotated[float, Field(ge=0)] = 1.0,
        n_slices: Annotated[int, Field(ge=1)] = 256,
        seed: int = 0,
    ) -> None:
        loss = partial(
            visreg,
            scale_weight=scale_weight,
            shape_weight=shape_weight,
            centre_weight=centre_weight,
        )
        super().__init__(weight, reads, loss, n_slices, seed)
