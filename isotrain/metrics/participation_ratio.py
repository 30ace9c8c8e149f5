"""Participation ratio: how many directions a cloud spans. N embeddings, D dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud


def participation_ratio(x: Tensor | Cloud, center: bool = True) -> Tensor:
    """(Σ λ)²/Σ λ² of `x [N, D]`, in directions; in [1, D], D = isotropic.

    λ are the eigenvalues of the covariance (`center`), or of the second moments about the origin,
    where the mean cone is a direction too. By traces, without an eigenproblem. With `center` it is
    1 + (D − 1)·IsoScore: a Gaussian cloud gives about N·D/(N + D). A cloud without scatter (without
    `center`: of zero vectors) gives 0.

    Gao et al. 2017.

    >>> import torch
    >>> participation_ratio(torch.cat([torch.eye(3), -torch.eye(3)])).item()
    3.0
    """
    cloud = Cloud.of(x)
    gram_SS = cloud.gram_SS if center else cloud.uncentred_gram_SS
    trace = gram_SS.trace()
    if not bool(trace > 0) or (center and not cloud.has_scatter):
        return 0.0 * trace
    return 1.0 / (gram_SS / trace).square().sum()
