"""Effective rank: the exponential of the entropy of singular values. N embeddings, D dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import entropy, root, shares


def effective_rank(x: Tensor | Cloud, center: bool = True) -> Tensor:
    """exp(H(p)) of `x [N, D]`, p = σ/Σσ; in [1, min(N − 1, D)], D = isotropic.

    σ are the singular values of `x`, centred (`center`) or as it is, H the entropy in nats. Counts
    directions; weak ones count for more than in the participation ratio, because σ and not σ² is
    the weight. Biased low for N ≲ 10·D: it cannot pass N − 1 (N without `center`). A cloud without
    scatter gives 0.

    Roy and Vetterli 2007 (there of the matrix as it is).

    >>> import torch
    >>> round(effective_rank(torch.cat([torch.eye(3), -torch.eye(3)])).item(), 9)
    3.0
    """
    singular_D = root(Cloud.of(x).spectrum(center))
    rank = entropy(shares(singular_D)).exp()
    return rank * (singular_D[0] > 0)
