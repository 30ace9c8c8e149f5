"""Statistics with the gradient of the batch alone. N embeddings, the last B are the batch's."""

import torch
from torch import Tensor

from isotrain.geometry.kmeans import cluster_means


def straight_through(
    x_ND: Tensor, n_own: int | None, assignment_N: Tensor | None = None, n_clusters: int = 1
) -> Tensor:
    """The same embeddings, whose statistics have the gradient of those of the last `n_own`.

    The others are constants of a queue that will follow the batch. Each embedding moves with the
    mean of the batch in its cluster, and those of the batch about that mean n_c/b_c times as much
    as they do (n_c members of the cluster, b_c of them of the batch). So the mean of a cluster
    moves by 1/b_c with each of its b_c, and a covariance C by 2·(x − m)·dx/b_c, m the mean of the
    b_c. A cluster without a member of the batch does not move.

    >>> x = torch.tensor([[0.0], [0.0], [2.0], [4.0]])
    >>> own = torch.tensor([[2.0], [4.0]], requires_grad=True)
    >>> straight_through(torch.cat([x[:2], own]), 2).mean().backward()
    >>> own.grad.tolist()
    [[0.5], [0.5]]
    """
    n = len(x_ND)
    if n_own is None or n_own == n or not x_ND.requires_grad:
        return x_ND
    if assignment_N is None:
        assignment_N = torch.zeros(n, dtype=torch.int64, device=x_ND.device)
    # Sums over embeddings by products: the backward of an index is many times slower.
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    owner_B, own_BD, member_BK = (x[n - n_own :] for x in (assignment_N, x_ND, member_NK))
    moved_BD = own_BD - own_BD.detach()  # zeros, with the gradient of the batch
    shift_KD, count_K = cluster_means(moved_BD, owner_B, n_clusters)
    weight_K = member_NK.sum(dim=0) / count_K.clamp_min(1.0)
    about_BD = weight_K[owner_B, None] * (moved_BD - member_BK @ shift_KD)
    about_ND = torch.cat([about_BD.new_zeros(n - n_own, x_ND.shape[1]), about_BD])
    return x_ND.detach() + member_NK @ shift_KD + about_ND
