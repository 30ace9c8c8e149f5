"""IsoScore: how evenly a cloud uses its dimensions. N embeddings, D dimensions."""

from typing import Literal

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import evenness


@checked
def isoscore(x: Tensor | Cloud, precision: Literal["double", "mixed"] = "double") -> Tensor:
    """Fraction of dimensions that `x [N, D]` uses evenly; in [0, 1], 1 = isotropic.

    (PR − 1)/(D − 1) with PR = (tr C)²/‖C‖²_F, the participation ratio of the centred covariance C.
    Equals the published five-step definition exactly, with two traces instead of an eigenproblem.
    Does not see the mean cone. Biased low for N ≲ 10·D: a Gaussian cloud gives about N/(N + D);
    `isoscore_corrected` takes that out. D = 1 gives 1, otherwise a cloud without scatter gives 0.

    `precision="mixed"` takes products of centred embeddings in float32, as the published package
    does; the value moves by less than 1e-6, unless torch takes float32 products in TF32 or
    bfloat16. Where N < D, products are double.

    Rudman et al. 2022, Eq. 5-7.

    >>> import torch
    >>> isoscore(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).item()
    1.0
    """
    cloud = Cloud.of(x)
    if cloud.d > 1 and not cloud.has_scatter:
        return 0.0 * cloud.gram_SS.sum()
    is_mixed = precision == "mixed" and cloud.n >= cloud.d
    gram_SS = cloud.product(torch.float32) if is_mixed else cloud.gram_SS
    return evenness(gram_SS.trace(), gram_SS.square().sum(), cloud.d)
