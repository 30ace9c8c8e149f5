"""S_inter: how similar different words are. N occurrences, D dimensions, n of a cluster."""

from typing import Literal

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.clusters import adjusted_parts, over_clusters
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import check_groups, sample_groups


def s_inter(
    x: Tensor | Cloud,
    groups: Tensor,
    adjust: Literal["none", "centre", "cluster"] = "none",
    k_max: int = 15,
    threshold: float = 0.1,
    max_rows: int = 2000,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Mean cosine of two words, one occurrence each; in [−1/(G−1), 1], 0 = isotropic.

    `x [N, D]` are occurrences and `groups [N]` integers that name their types (G of them). One
    occurrence of each type is drawn, and every pair of types counts once.

    - `value`: (‖Σ u_g‖² − G)/(G(G−1)) over the drawn ones, u = x/‖x‖.
    - `baseline`: mean cosine of any two occurrences, where frequent types weigh more.
    - `adjusted`: `value` − `baseline`.
    - `n_groups`: occurrences drawn; `n_clusters`: clusters formed.

    `adjust`: `none`; `centre` subtracts the mean of all; `cluster` forms clusters by k-means, k in
    2..`k_max` with the best silhouette (of at most `max_rows`), one cluster if that is below
    `threshold`, subtracts each cluster's mean, and averages over clusters with equal weight. A type
    in two clusters counts in both; clusters of one type are left out. Centring n vectors makes
    their mean cosine about −1/n.

    Draws hash positions with `seed`. Unbiased over the draw. A vector that is zero, or the mean of
    its cluster, has cosine 0.

    Raises:
        ValueError: no two types in one cluster.

    Cai et al. 2021, S_inter and their released code.

    >>> import torch
    >>> s_inter(torch.eye(4), torch.tensor([0, 0, 1, 1]))["value"].item()
    0.0
    """
    x = Cloud.of(x).rows
    index_N = check_groups(x, groups).index_N
    parts = adjusted_parts(x, adjust, k_max, threshold, max_rows, seed)

    def between(position_n: Tensor, x_nD: Tensor) -> tuple[Tensor, int] | None:
        types = check_groups(x_nD, index_N[position_n])
        index_G = sample_groups(types, types.count_G > 0, 1, seed)[:, 0]
        n_types = len(index_G)
        return (mean_pairwise_cosine(x_nD[index_G]), n_types) if n_types > 1 else None

    return over_clusters(parts, between, "two types")
