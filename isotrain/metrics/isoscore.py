"""IsoScore: how evenly a cloud uses its dimensions. N embeddings, D dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import evenness


def isoscore(x: Tensor | Cloud) -> Tensor:
    """Fraction of dimensions that `x [N, D]` uses evenly; in [0, 1], 1 = isotropic.

    (PR − 1)/(D − 1) with PR = (tr C)²/‖C‖²_F, the participation ratio of the centred covariance C.
    Equals the published five-step definition exactly, with two traces instead of an eigenproblem.
    Does not see the mean cone. Biased low for N ≲ 10·D: a Gaussian cloud gives about N/(N + D);
    `isoscore_corrected` takes that out. D = 1 gives 1, otherwise a cloud without scatter gives 0.

    Rudman et al. 2022, Eq. 5-7.

    >>> import torch
    >>> isoscore(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).item()
    1.0
    """
    cloud = Cloud.of(x)
    if cloud.d > 1 and not cloud.has_scatter:
        return 0.0 * cloud.gram_SS.sum()
    return evenness(cloud.gram_SS.trace(), cloud.gram_SS.square().sum(), cloud.d)
