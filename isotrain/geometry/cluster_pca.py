"""Cluster centring and removal of dominant directions, as pure functions.

N rows, D width, K clusters, R directions, J directions of all rows that are clipped first.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.kmeans import cluster_means, kmeans, nearest_centroid
from isotrain.geometry.levels import bulk_level, capped_basis
from isotrain.geometry.linalg import leading_directions, leading_directions_of_each
from isotrain.geometry.rows import has_scatter

Centre = Literal["none", "global", "cluster", "shrink"]
Removal = Literal["project", "clip"]


class Clip(NamedTuple):
    """Directions of all rows, and the share of each above the bulk level of the cloud."""

    mean_D: Tensor
    direction_DJ: Tensor
    share_J: Tensor


def fit_clip(x_ND: Tensor, n_directions: int, rho: float, effective_rows: int) -> Clip:
    """The leading directions of the rows, at most floor(rho·(N − 1)), and their shares.

    >>> x = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> fit_clip(x, 1, rho=1.0, effective_rows=4).share_J.tolist()
    [0.75]
    """
    none_DJ = x_ND.new_zeros(x_ND.shape[1], n_directions)
    if n_directions == 0 or not has_scatter(x_ND.detach()):
        return Clip(x_ND.new_zeros(x_ND.shape[1]), none_DJ, none_DJ[0])
    mean_D = x_ND.detach().mean(dim=0)
    centred_ND = x_ND.detach() - mean_D
    basis_DJ = leading_directions(centred_ND, n_directions + 1)
    basis_DJ = capped_basis(basis_DJ, rho, effective_rows)
    return Clip(mean_D, basis_DJ, bulk_level(centred_ND, basis_DJ)[1])


def apply_clip(x_ND: Tensor, clip: Clip) -> Tensor:
    """Rows with the clipped directions at the bulk level; can be undone. The mean stays.

    >>> clip = Clip(torch.zeros(2), torch.tensor([[1.0], [0.0]]), torch.tensor([0.75]))
    >>> apply_clip(torch.tensor([[4.0, 1.0]]), clip).tolist()
    [[1.0, 1.0]]
    """
    if clip.share_J.shape[0] == 0:
        return x_ND
    above_NJ = ((x_ND - clip.mean_D) @ clip.direction_DJ) * clip.share_J
    return x_ND - above_NJ @ clip.direction_DJ.T


class ClusterPCAStats(NamedTuple):
    """What `fit_cluster_pca` estimates and `apply_cluster_pca` uses."""

    anchor_KD: Tensor  # a row belongs to its nearest anchor
    centre_KD: Tensor  # what is subtracted from the rows of a cluster
    direction_KDR: Tensor  # orthonormal columns that are removed; zero columns past the cap
    counters: dict[str, Tensor]
    removed_KR: Tensor | None = None  # share of each direction that is taken out; None = all
    clip_mean_D: Tensor | None = None  # of a clip of all rows that comes first; None = no clip
    clip_DJ: Tensor | None = None
    clip_J: Tensor | None = None
    scale: Tensor | None = None  # what results are multiplied by; None = 1
    assignment_N: Tensor | None = None  # of the rows it was fitted on


def fit_cluster_pca(
    x_ND: Tensor,
    n_clusters: int,
    n_components: int,
    *,
    centre: Centre = "cluster",
    removal: Removal = "project",
    rho: float = 0.25,
    min_rows: int = 4,
    effective_rows: int | None = None,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    n_iterations: int = 3,
) -> ClusterPCAStats:
    """Clusters, their means and their dominant directions.

    Rows are clustered by k-means; a cluster of n_c rows subtracts its mean and loses its
    min(R, floor(rho·(n_c − 1)), rank − 1) leading principal directions. A cluster with fewer
    than `min_rows` rows, or without scatter, borrows the mean and directions of all rows; a
    cloud without scatter (one row, equal rows) is left as it is. The counters say how often.

    `centre` is what a row loses first: nothing, the mean of all rows (`global`), that of its
    cluster, or (`shrink`) that of its cluster but for its offset from the mean of all, cut to the
    bulk level. `removal` takes a direction out (`project`) or shrinks it to the bulk level
    (`clip`, which can be undone). The bulk level of a cloud is the mean of the eigenvalues of its
    covariance that are not removed; a length is cut to its root.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. `effective_rows` counts as N in these rules
    (cluster shares stay as they are): statistics fitted on a long queue then remove as many
    directions as the batches of training did. The means carry a gradient; assignments and
    directions do not.

    Rajaee and Pilehvar 2021, section 3; the caps and the borrowing are ours.

    >>> g = torch.Generator().manual_seed(0)
    >>> stats = fit_cluster_pca(torch.randn(64, 4, generator=g), 2, 1, generator=g)
    >>> stats.direction_KDR.shape
    torch.Size([2, 4, 1])
    """
    n = len(x_ND)
    detached_ND = x_ND.detach()
    clusters = kmeans(
        detached_ND, n_clusters, generator=generator, init=init, n_iterations=n_iterations
    )
    mean_KD, count_K = cluster_means(x_ND, clusters.assignment_N, n_clusters)
    effective = min(n, effective_rows or n)
    counts = [int(c) for c in count_K.tolist()]
    members = [detached_ND[clusters.assignment_N == c] for c in range(n_clusters)]
    borrows = [
        count * effective / n < min_rows or not has_scatter(rows_CD)
        for count, rows_CD in zip(counts, members, strict=True)
    ]
    mean_D = (count_K @ mean_KD) / n
    clouds = [x - mean_KD[c].detach() for c, x in enumerate(members)]
    alone = [c for c, borrow in enumerate(borrows) if not borrow]
    rest_ND = None
    if any(borrows):  # then the first basis is that of all rows, for the small clusters
        offset_KD = count_K.sqrt()[:, None] * (mean_KD - mean_D).detach()
        rest_ND = torch.cat([*(clouds[c] for c, borrow in enumerate(borrows) if borrow), offset_KD])
    # One direction more than is removed tells whether anything would be left.
    wanted = n_components + 1 if n_components > 0 else 0
    bases = leading_directions_of_each(
        [clouds[c] for c in alone], wanted, rest_ND, n_settled=n_components
    )
    owners = [n] * any(borrows) + [counts[c] for c in alone]
    bases = [
        capped_basis(basis_DS, rho, count * effective / n)
        for basis_DS, count in zip(bases, owners, strict=True)
    ]
    own = dict(zip(alone, bases[len(bases) - len(alone) :], strict=True))
    directions = [own.get(c, bases[0]) for c in range(n_clusters)]
    scattered = not all(borrows) or has_scatter(detached_ND)
    direction_KDR = torch.stack(directions) * scattered
    borrow_K = torch.tensor(borrows, device=x_ND.device)
    centre_KD = torch.where(borrow_K[:, None], mean_D, mean_KD)
    removed_KR = torch.ones_like(direction_KDR[:, 0])
    if removal == "clip" or centre == "shrink":
        everything_ND = detached_ND - mean_D.detach()
        spectra = [
            bulk_level(everything_ND if borrow else cloud_CD, direction_DR)
            for borrow, cloud_CD, direction_DR in zip(borrows, clouds, direction_KDR, strict=True)
        ]
        if removal == "clip":
            removed_KR = torch.stack([share_R for _, share_R in spectra])
        if centre == "shrink":
            offset_KD = centre_KD - mean_D
            length_K = offset_KD.detach().norm(dim=1)
            level_K = torch.stack([level for level, _ in spectra])
            kept_K = (level_K / torch.where(length_K > 0, length_K, 1.0)).clamp(max=1.0)
            centre_KD = centre_KD - kept_K[:, None] * offset_KD
    if centre in ("none", "global"):
        centre_KD = mean_D.expand_as(centre_KD) * (centre == "global")
    counters = {
        "rows_passed_through": 0 if scattered else n,
        "rows_borrowed": (n - sum(counts[c] for c in alone)) * scattered,
        "clusters_empty": counts.count(0),
        "directions_removed": float(direction_KDR.square().sum().round()),
    }
    return ClusterPCAStats(
        clusters.centroid_KD,
        centre_KD * scattered,
        direction_KDR,
        {name: torch.tensor(float(value)) for name, value in counters.items()},
        removed_KR,
        assignment_N=clusters.assignment_N,
    )


def apply_cluster_pca(
    x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None = None
) -> Tensor:
    """Rows minus the mean and the dominant directions of their cluster, `[N, D]`.

    y = (x − m_c) − V_c·diag(r_c)·V_cᵀ(x − m_c), c the given cluster, else that of the nearest
    anchor, r_c = `removed`. The directions act on the right of the rows, so that with detached V
    the gradient is the projection itself.

    >>> stats = ClusterPCAStats(torch.zeros(1, 2), torch.zeros(1, 2),
    ...                         torch.tensor([[[1.0], [0.0]]]), {})
    >>> apply_cluster_pca(torch.tensor([[3.0, 4.0]]), stats).tolist()
    [[0.0, 4.0]]
    """
    n_clusters, width, n_components = stats.direction_KDR.shape
    if assignment_N is None:
        assignment_N = nearest_centroid(x_ND, stats.anchor_KD)
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    y_ND = x_ND - member_NK @ stats.centre_KD
    if n_components == 0:
        return y_ND
    # All clusters' directions side by side; each row keeps the coefficients of its own.
    basis_DF = stats.direction_KDR.transpose(0, 1).reshape(width, n_clusters * n_components)
    own_NF = member_NK.repeat_interleave(n_components, dim=1)
    if stats.removed_KR is not None:
        own_NF = own_NF * stats.removed_KR.flatten()
    return y_ND - ((y_ND @ basis_DF) * own_NF) @ basis_DF.T
