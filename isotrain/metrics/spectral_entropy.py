"""Normalised entropy of the eigenvalues of a cloud. N embeddings, D dimensions."""

import math

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import entropy, shares


def spectral_entropy(x: Tensor | Cloud, center: bool = True) -> Tensor:
    """H(λ/Σλ)/ln D of `x [N, D]`; in [0, 1], 1 = isotropic, 0 = one direction.

    λ are the eigenvalues of the covariance (`center`) or of the second moments about the origin.
    Weights are variances, so it is lower than the logarithm of `effective_rank`, whose weights are
    their roots. Biased low for N ≲ 10·D: it cannot pass ln(N − 1)/ln D. D = 1 gives 1, otherwise a
    cloud without scatter gives 0.

    Ours: the entropy of Roy and Vetterli 2007, of variances, over its maximum.

    >>> import torch
    >>> round(spectral_entropy(torch.cat([torch.eye(3), -torch.eye(3)])).item(), 9)
    1.0
    """
    cloud = Cloud.of(x)
    if cloud.d == 1:
        return cloud.mean_D.new_ones(())
    return entropy(shares(cloud.spectrum(center))) / math.log(cloud.d)
