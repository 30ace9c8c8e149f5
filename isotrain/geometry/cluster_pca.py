"""Cluster centring and removal of dominant directions, as pure functions.

N rows, D width, K clusters, R directions of a cluster, J directions of all rows that are spared.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.assignment import Anchors, Assign, fit_anchors, memberships
from isotrain.geometry.cluster_removal import (
    Centre,
    Directions,
    Grad,
    Removal,
    fit_cluster_removal,
)
from isotrain.geometry.following import following
from isotrain.geometry.levels import rms_distance
from isotrain.geometry.spared import (
    Spared,
    fit_spared,
    kept_share,
    spared_coordinates,
    without,
)


class ClusterPCAStats(NamedTuple):
    """What `fit_cluster_pca` estimates and `apply_cluster_pca` uses."""

    anchor_KD: Tensor  # a row belongs to its nearest anchor
    centre_KD: Tensor  # what is subtracted from the rows of a cluster
    direction_KDR: Tensor  # orthonormal columns that are removed; zero columns past the cap
    counters: dict[str, Tensor]
    removed_KR: Tensor | None = None  # share of each direction that is taken out; None = all
    spared_mean_D: Tensor | None = None  # of directions of all rows that are set aside first
    spared_DJ: Tensor | None = None
    kept_J: Tensor | None = None  # share of each that comes back
    scale: Tensor | None = None  # what results are multiplied by; None = 1
    variance_KD: Tensor | None = None  # of the anchors of a mixture, with their weights
    log_weight_K: Tensor | None = None
    unit: Tensor | None = None  # what softness is relative to
    assign: Assign = "kmeans"
    softness: float = 0.0  # 0 = each row belongs to one cluster
    assignment_N: Tensor | None = None  # of the rows it was fitted on
    matrix_KDD: Tensor | None = None  # what removal takes, with a gradient, in place of directions


def fit_cluster_pca(
    x_ND: Tensor,
    n_clusters: int,
    n_components: int,
    *,
    n_clipped: int = 0,
    labels_N: Tensor | None = None,
    assign: Assign = "kmeans",
    softness: float = 0.0,
    centre: Centre = "cluster",
    directions: Directions = "principal",
    removal: Removal = "project",
    level: float = 1.0,
    keep_scale: bool = False,
    rho: float = 0.25,
    min_rows: int = 4,
    grad: Grad = "detach",
    effective_rows: int | None = None,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    n_iterations: int = 3,
    exact: bool = False,
    n_own: int | None = None,
) -> ClusterPCAStats:
    """Clusters, their means and their dominant directions.

    First directions of all rows are set aside: the between-class ones, if there are labels, then
    `n_clipped` leading ones (`fit_spared` has both). They come back at the end, shrunk to the
    bulk level of the result, and no later step sees them.

    What remains is clustered (`assign`, `fit_anchors` has the ways); a cluster of n_c rows
    subtracts its mean and loses its min(R, floor(rho·(n_c − 1)), rank − 1) leading principal
    directions, or as many random ones (`directions`). A cluster with fewer than `min_rows` rows,
    or without scatter, borrows the mean and directions of all rows; a cloud without scatter (one
    row, equal rows) is left as it is. The counters say how often. With a softness above 0 a row
    loses what its clusters would take, each by its share (`memberships`); the statistics are
    those of the nearest clusters' rows. `init` are centroids of rows without what is set aside.

    `centre` is what a row loses first: nothing, the mean of all rows (`global`), that of its
    cluster, or (`shrink`) that of its cluster but for its offset from the mean of all, cut to the
    bulk level. `removal` takes a direction out (`project`) or shrinks it to the bulk level
    (`clip`, which can be undone). The bulk level of a cloud is its mean variance per dimension
    outside of the removed directions; a length is cut to its root, times `level`. `keep_scale`
    gives results the rms distance from their mean that the rows had.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. `effective_rows` counts as N in these rules
    (cluster shares stay as they are): statistics fitted on a long queue then remove as many
    directions as the batches of training did. Directions of large clusters are iterated to a
    residual of 1e-3, unless `exact`.

    Means carry a gradient, with `grad="levels"` bulk levels and variances too, with `"full"` also
    directions; assignments, the kept scale and spared directions never do. The last `n_own` rows
    (all, by default) are the batch's, which statistics move with: see `following`.

    Rajaee and Pilehvar 2021, section 3; the caps, the borrowing and what is spared are ours.

    >>> g = torch.Generator().manual_seed(0)
    >>> stats = fit_cluster_pca(torch.randn(64, 4, generator=g), 2, 1, generator=g)
    >>> stats.direction_KDR.shape
    torch.Size([2, 4, 1])
    """
    effective = min(len(x_ND), effective_rows or len(x_ND))
    n_own = len(x_ND) if n_own is None else n_own
    spared = None
    rest_ND = all_ND = x_ND
    if n_clipped or labels_N is not None:
        all_ND = following(x_ND, n_own)
        spared = fit_spared(all_ND, n_clipped, labels_N)
        rest_ND = without(x_ND, spared)
    anchors, assignment_N = fit_anchors(
        rest_ND.detach(),
        n_clusters,
        assign,
        generator=generator,
        init=init,
        n_iterations=n_iterations,
        soft=softness > 0.0,
    )
    taken = fit_cluster_removal(
        rest_ND,
        assignment_N,
        n_clusters,
        n_components,
        n_own,
        centre=centre,
        directions=directions,
        removal=removal,
        level=level,
        rho=rho,
        min_rows=min_rows,
        grad=grad,
        effective_rows=effective,
        generator=generator,
        exact=exact,
    )
    anchor_KD, variance_KD, log_weight_K, unit, _ = anchors
    stats = ClusterPCAStats(
        anchor_KD,
        taken.centre_KD,
        taken.direction_KDR,
        taken.counters,
        taken.removed_KR,
        variance_KD=variance_KD,
        log_weight_K=log_weight_K,
        unit=unit,
        assign=assign,
        softness=softness,
        assignment_N=assignment_N,
        matrix_KDD=taken.matrix_KDD,
    )
    if spared is not None:
        coordinate_NJ = spared_coordinates(all_ND, spared)
        after_ND = apply_cluster_pca(without(all_ND, spared), stats, assignment_N)
        kept_J = kept_share(after_ND, coordinate_NJ, spared.direction_DJ, level)
        stats = stats._replace(
            spared_mean_D=spared.mean_D,
            spared_DJ=spared.direction_DJ,
            kept_J=kept_J.detach() if grad == "detach" else kept_J,
        )
    if keep_scale:
        with torch.no_grad():
            after = rms_distance(apply_cluster_pca(x_ND, stats, assignment_N))
            scale = rms_distance(x_ND) / torch.where(after > 0, after, 1.0)
            stats = stats._replace(scale=torch.where(after > 0, scale, 1.0))
    return stats


def apply_cluster_pca(
    x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None = None
) -> Tensor:
    """Rows minus the mean and the dominant directions of their cluster, `[N, D]`.

    y = (x − m_c) − V_c·diag(r_c)·V_cᵀ(x − m_c), c the given cluster, else that of the nearest
    anchor, r_c = `removed`; all of x but its spared part P·(x − m), of which `kept` comes back
    at the end. With a softness above 0 it is a sum over clusters, by membership. The directions
    act on the right of the rows, so that with detached V the gradient is the projection itself.

    >>> stats = ClusterPCAStats(torch.zeros(1, 2), torch.zeros(1, 2),
    ...                         torch.tensor([[[1.0], [0.0]]]), {})
    >>> apply_cluster_pca(torch.tensor([[3.0, 4.0]]), stats).tolist()
    [[0.0, 4.0]]
    """
    returned_ND = None
    if stats.spared_mean_D is not None and stats.spared_DJ is not None and stats.spared_DJ.numel():
        spared = Spared(stats.spared_mean_D, stats.spared_DJ)
        kept_NJ = spared_coordinates(x_ND, spared) * stats.kept_J  # type: ignore[operator]
        returned_ND = kept_NJ @ stats.spared_DJ.T
        x_ND = without(x_ND, spared)
    y_ND = _without_clusters(x_ND, stats, assignment_N)
    if returned_ND is not None:
        y_ND = y_ND + returned_ND
    return y_ND if stats.scale is None else y_ND * stats.scale


def _without_clusters(x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None) -> Tensor:
    n_clusters, width, n_components = stats.direction_KDR.shape
    if assignment_N is not None and stats.softness == 0.0:
        member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    else:
        none_ZD = stats.anchor_KD[:0]
        anchors = Anchors(
            stats.anchor_KD,
            none_ZD if stats.variance_KD is None else stats.variance_KD,
            none_ZD[:, 0] if stats.log_weight_K is None else stats.log_weight_K,
            x_ND.new_ones(()) if stats.unit is None else stats.unit,
            stats.assign,
        )
        member_NK = memberships(x_ND, anchors, stats.softness)
    y_ND = x_ND - member_NK @ stats.centre_KD
    if n_components == 0:
        return y_ND
    if stats.matrix_KDD is not None:
        taken_KND = (y_ND @ stats.matrix_KDD) * member_NK.T[:, :, None]
        return y_ND - taken_KND.sum(dim=0)
    # All clusters' directions side by side; each row keeps the coefficients of its own.
    basis_DF = stats.direction_KDR.transpose(0, 1).reshape(width, n_clusters * n_components)
    own_NF = member_NK.repeat_interleave(n_components, dim=1)
    if stats.removed_KR is not None:
        own_NF = own_NF * stats.removed_KR.flatten()
    return y_ND - ((y_ND @ basis_DF) * own_NF) @ basis_DF.T
