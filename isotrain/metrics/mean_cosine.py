"""Mean cosine of pairs, the usual measure of anisotropy. N embeddings, D dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud


def mean_cosine(x: Tensor | Cloud) -> Tensor:
    """Mean cosine of all pairs of distinct embeddings `x [N, D]`; [−1/(N−1), 1], 0 = isotropic.

    (‖Σ u_i‖² − Σ‖u_i‖²)/(N(N−1)), u_i = x_i/‖x_i‖: exact over all pairs in O(N·D). Sees the mean
    cone and little else. Unbiased for every N. A zero vector has cosine 0.

    Ethayarajh 2019, section 4.1 (there over sampled pairs).

    >>> import torch
    >>> mean_cosine(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).item()
    0.0
    """
    cloud = Cloud.of(x)
    sums = cloud.unit_sums
    return (sums.sum_D.square().sum() - sums.square_D.sum()) / (cloud.n * (cloud.n - 1))
