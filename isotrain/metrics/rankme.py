"""RankMe: the smoothed effective rank of representations. N embeddings, D dimensions."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import root, shares


@checked
def rankme(
    x: Tensor | Cloud, epsilon: Annotated[float, Field(gt=0)] = 1e-7, center: bool = False
) -> Tensor:
    """exp(−Σ p·ln p) of `x [N, D]`, p = σ/Σσ + ε; from 1 to min(N, D) = isotropic.

    σ are the min(N, D) singular values of `x`: the published form does not centre, so a mean cone
    lowers it. ε keeps the logarithm finite and adds about min(N, D)·ε·ln(1/ε) to the exponent.
    Biased low for N ≲ 10·D. Zero vectors (with `center`: a cloud without scatter) give 0.

    Garrido et al. 2023.

    >>> import torch
    >>> round(rankme(torch.eye(3)).item(), 4)
    3.0
    """
    cloud = Cloud.of(x)
    singular_D = root(cloud.spectrum(center))[: min(cloud.n, cloud.d)]
    share_D = shares(singular_D) + epsilon
    return (-(share_D * share_D.log()).sum()).exp() * (singular_D[0] > 0)
