"""Center K clusters and remove R dominant directions of each; J directions are protected."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.assignment import KMEANS, Anchors, Assignment, fit_anchors, memberships
from isotrain.geometry.cluster_removal import PROJECT, Removal, fit_cluster_removal
from isotrain.geometry.levels import rms_distance
from isotrain.geometry.protected import (
    ProtectedDirections,
    Protection,
    fit_protected,
    protected_coordinates,
    returned_share,
    without_protected,
)
from isotrain.geometry.straight_through import straight_through


class ClusterPCAStats(NamedTuple):
    """What `fit_cluster_pca` estimates and `apply_cluster_pca` uses."""

    anchor_KD: Tensor  # an embedding belongs to its nearest anchor
    centre_KD: Tensor  # what is subtracted from the embeddings of a cluster
    direction_KDR: Tensor  # orthonormal columns that are removed; zero columns past the cap
    counters: dict[str, Tensor]
    removed_KR: Tensor  # share of each direction that is taken out
    variance_KD: Tensor  # of mixture components, with their weights; [0, D] otherwise
    log_weight_K: Tensor
    unit: Tensor  # unit of softness
    assign: Assignment
    assignment_N: Tensor | None = None  # cluster of each fitted embedding
    matrix_KDD: Tensor | None = None  # removal matrix with a gradient, in place of directions
    spared_mean_D: Tensor | None = None  # of the protected directions; None without protection
    spared_DJ: Tensor | None = None
    kept_J: Tensor | None = None  # share of each that is restored
    scale: Tensor | None = None  # output scale; None = 1


def fit_cluster_pca(
    x_ND: Tensor,
    n_clusters: int,
    n_components: int,
    assign: Assignment = KMEANS,
    removal: Removal = PROJECT,
    protect: Protection | None = None,
    *,
    labels_N: Tensor | None = None,
    effective_rows: int | None = None,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    exact: bool = False,
    n_own: int | None = None,
) -> ClusterPCAStats:
    """Fit clusters, their means and their dominant directions.

    A cluster of n_c embeddings subtracts its mean and loses its min(R, floor(rho·(n_c − 1)), rank −
    1) leading principal directions. A cluster with fewer than `min_rows` embeddings, or without
    scatter, falls back to global mean and directions; a cloud without scatter is left unchanged.
    Counters record how often. The noise floor of a cloud is its mean variance per dimension
    outside the removed directions.

    `protect` excludes directions of all embeddings: leading ones, and the between-class ones of
    given labels. They are restored at the end, shrunk to the noise floor of the result.

    `x_ND`: finite float32 or float64, N ≥ 1. `init [K, D]` initialises k-means (without the
    protected directions). `effective_rows` replaces N in these rules: statistics fitted on a long
    queue then remove as many directions as the training batches did. Directions of large
    clusters are iterated to a residual of 1e-3, unless `exact`.

    Means carry a gradient, and so does what `removal.grad` adds; assignments, protected directions
    and the scale never do. Gradients flow to the last `n_own` embeddings (all, by default): see
    `straight_through`.

    Rajaee and Pilehvar 2021, section 3; the caps, the fallback and protection are ours.

    >>> g = torch.Generator().manual_seed(0)
    >>> stats = fit_cluster_pca(torch.randn(64, 4, generator=g), 2, 1, generator=g)
    >>> stats.direction_KDR.shape
    torch.Size([2, 4, 1])
    """
    n_own = len(x_ND) if n_own is None else n_own
    protected, rest_ND = None, x_ND
    if protect is not None and (protect.n_leading or labels_N is not None):
        all_ND = straight_through(x_ND, n_own)
        protected = fit_protected(all_ND, protect.n_leading, labels_N)
        rest_ND = without_protected(x_ND, protected)
    anchors, cluster_N = fit_anchors(
        rest_ND.detach(), n_clusters, assign, generator=generator, init=init
    )
    lost = fit_cluster_removal(
        rest_ND,
        cluster_N,
        n_clusters,
        n_components,
        removal,
        n_own,
        effective_rows=min(len(x_ND), effective_rows or len(x_ND)),
        generator=generator,
        exact=exact,
    )
    stats = ClusterPCAStats(
        anchors.anchor_KD,
        lost.centre_KD,
        lost.direction_KDR,
        lost.counters,
        lost.removed_KR,
        anchors.variance_KD,
        anchors.log_weight_K,
        anchors.unit,
        assign,
        cluster_N,
        lost.matrix_KDD,
    )
    if protect is not None and protected is not None:
        # In this order: gradients are summed in the order of the forward pass.
        coordinate_NJ = protected_coordinates(all_ND, protected)
        after_ND = apply_cluster_pca(without_protected(all_ND, protected), stats, cluster_N)
        kept_J = returned_share(after_ND, coordinate_NJ, protected.direction_DJ, protect.level)
        stats = stats._replace(
            spared_mean_D=protected.mean_D,
            spared_DJ=protected.direction_DJ,
            kept_J=kept_J.detach() if removal.grad == "detach" else kept_J,
        )
    if protect is not None and protect.scale:
        with torch.no_grad():
            after = rms_distance(apply_cluster_pca(x_ND, stats, cluster_N))
            scale = rms_distance(x_ND) / torch.where(after > 0, after, 1.0)
            stats = stats._replace(scale=torch.where(after > 0, scale, 1.0))
    return stats


def apply_cluster_pca(
    x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None = None
) -> Tensor:
    """Embeddings minus the mean and the dominant directions of their cluster, `[N, D]`.

    y = (x − m_c) − V_c·diag(r_c)·V_cᵀ(x − m_c), c the given cluster, else that of the nearest
    anchor, r_c = `removed`; the protected part, times `kept`, is added back. With softness above 0,
    y is a sum over clusters weighted by membership.

    >>> x = torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])
    >>> stats = fit_cluster_pca(x, n_clusters=1, n_components=1, removal=Removal(rho=1.0))
    >>> apply_cluster_pca(torch.tensor([[3.0, 4.0]]), stats).tolist()
    [[0.0, 4.0]]
    """
    returned_ND = None
    if stats.spared_mean_D is not None and stats.spared_DJ is not None and stats.spared_DJ.numel():
        protected = ProtectedDirections(stats.spared_mean_D, stats.spared_DJ)
        kept_NJ = protected_coordinates(x_ND, protected) * stats.kept_J  # type: ignore[operator]
        returned_ND = kept_NJ @ stats.spared_DJ.T
        x_ND = without_protected(x_ND, protected)
    y_ND = _without_clusters(x_ND, stats, assignment_N)
    if returned_ND is not None:
        y_ND = y_ND + returned_ND
    return y_ND if stats.scale is None else y_ND * stats.scale


def _without_clusters(x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None) -> Tensor:
    n_clusters, width, n_components = stats.direction_KDR.shape
    if assignment_N is not None and stats.assign.softness == 0.0:
        member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    else:
        anchors = Anchors(
            stats.anchor_KD, stats.variance_KD, stats.log_weight_K, stats.unit, stats.assign.method
        )
        member_NK = memberships(x_ND, anchors, stats.assign.softness)
    y_ND = x_ND - member_NK @ stats.centre_KD
    if n_components == 0:
        return y_ND
    if stats.matrix_KDD is not None:
        taken_KND = (y_ND @ stats.matrix_KDD) * member_NK.T[:, :, None]
        return y_ND - taken_KND.sum(dim=0)
    # Directions of all clusters at once; each embedding keeps its own cluster's coefficients.
    basis_DF = stats.direction_KDR.transpose(0, 1).reshape(width, n_clusters * n_components)
    own_NF = member_NK.repeat_interleave(n_components, dim=1) * stats.removed_KR.flatten()
    return y_ND - ((y_ND @ basis_DF) * own_NF) @ basis_DF.T
