"""S_intra: how similar the instances of a word are. N instances, D dimensions, n of a cluster."""

from typing import Literal

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.clusters import adjusted_parts, over_clusters
from isotrain.geometry.groups import check_groups, group_mean_cosine


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

    `x [N, D]` are instances and `groups [N]` integers that name their types. Types of one instance
    are left out; the others, n each, weigh equally. All pairs count, exactly; the released code
    draws at most 1,000 instances of a type.

    - `value`: mean over types of (‖Σ u_i‖² − n)/(n(n−1)), u = x/‖x‖.
    - `baseline`: mean cosine of any two instances.
    - `adjusted`: `value` − `baseline`.
    - `n_groups`: types measured; `n_clusters`: clusters formed.

    `adjust` and zero vectors are as in `s_inter`, except that for `adjust=none` and `centre`
    nothing is drawn. A type in two clusters is one type in each; clusters without two instances of
    a type are left out.

    Raises:
        ValueError: no type with two instances, or none with two in one cluster.

    Cai et al. 2021, S_intra and their released code.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> s_intra(x, torch.tensor([0, 0, 1]))["value"].item()
    1.0
    """
    x = Cloud.of(x).rows
    index_N = check_groups(x, groups).index_N
    parts = adjusted_parts(x, adjust, k_max, threshold, max_rows, seed)

    def within(position_n: Tensor, x_nD: Tensor) -> tuple[Tensor, int] | None:
        index_n = index_N[position_n]
        if int(index_n.bincount().max()) == 1:
            return None
        value_G = group_mean_cosine(x_nD, index_n)
        return value_G.mean(), len(value_G)

    return over_clusters(parts, within, "two instances of a type")
