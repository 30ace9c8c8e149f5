"""S_intra: how alike the instances of a word are. N rows, D dimensions, n rows of a cluster."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.clusters import adjusted_parts, over_clusters
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import check_groups, group_mean_cosine, large_groups


def s_intra(
    x: Tensor | Cloud,
    groups: Tensor,
    adjust: Literal["none", "centre", "cluster"] = "none",
    k_max: int = 15,
    threshold: float = 0.1,
    max_rows: int = 2000,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Mean cosine of two instances of a type; in [−1, 1], adjusted 0 = no type shows.

    `x [N, D]` are instances and `groups [N]` integers that name their types. Types of one row are
    left out; the others, n rows each, weigh equally. All pairs count, exactly; the released code
    draws at most 1,000 instances of a type. Without units:

    - `value`: mean over types of (‖Σ u_i‖² − n)/(n(n−1)), u = x/‖x‖.
    - `baseline`: mean cosine of any two rows (`mean_cosine` of the cloud for `adjust=none`).
    - `adjusted`: `value` − `baseline`.
    - `n_groups`: types measured; `n_clusters`: clusters found.

    `adjust`: `none`; `centre` subtracts the mean of all rows; `cluster` forms clusters by k-means,
    k in 2..`k_max` with the best silhouette (of at most `max_rows` rows), one cluster if that is
    below `threshold`, subtracts each cluster's mean, and averages `value` and `baseline` over
    clusters with equal weight. A type with rows in two clusters is one type in each; clusters
    without two instances of a type are left out. Centring makes cosines slightly negative, by
    about 1/n in a cluster of n rows: −1 for the two rows of a cluster of two.

    Unchanged by rotation and names of groups; by row length for `adjust=none`, else by one common
    scale and translation. Unchanged by the order of rows too, but for `adjust=cluster`, where
    k-means and the silhouette draw rows with `seed`. A zero row, or one that equals the mean of
    its cluster, has cosine 0.

    Raises:
        ValueError: not `[N, D]`, N < 2, a NaN or infinity, groups that are not one integer per
            row, another `adjust`, `k_max` below 1, `max_rows` below 3, no type with two rows, or
            none with two rows in one cluster.

    Cai et al. 2021, S_intra and their released code.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> s_intra(x, torch.tensor([0, 0, 1]))["value"].item()
    1.0
    """
    x = Cloud.of(x).rows
    found = check_groups(x, groups)
    large_groups(found, 2, "give more rows per type")
    parts = adjusted_parts(x, adjust, k_max, threshold, max_rows, seed)
    values, baselines, n_types = [], [], 0
    for position_n, x_nD in parts:
        index_n = found.index_N[position_n]
        if int(index_n.bincount().max()) > 1:
            value_G = group_mean_cosine(x_nD, index_n).value_G
            values.append(value_G.mean())
            baselines.append(mean_pairwise_cosine(x_nD))
            n_types += len(value_G)
    if not values:
        raise ValueError(
            f"s_intra needs two instances of a type in one cluster, and none of {len(parts)} "
            "clusters has them; give more rows per type, or lower k_max"
        )
    return over_clusters(values, baselines, n_types, len(parts))
